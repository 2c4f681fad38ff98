package coordinator

import "os"

func widen(*os.File) {}

// tryWrite and tryShared are nil: everything is written by the writer's
// goroutine.
func tryWrite(*os.File) func([]byte) (int, error)  { return nil }
func tryShared(*os.File) func([]byte) (int, error) { return nil }

// hungUp is not known here: the host's going is noticed when it is written to.
func hungUp(*os.File) bool { return false }
