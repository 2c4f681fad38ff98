package flags

func closeOnExec(int) {}
