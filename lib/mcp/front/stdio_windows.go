package front

import "os"

// tryShared is nil: everything is written by the writer's goroutine.
func tryShared(*os.File) func([]byte) (int, error) { return nil }

// hungUp is not known here: the host's going is noticed when it is written to.
func hungUp(*os.File) bool { return false }
