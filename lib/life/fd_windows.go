package life

func closeOnExec(int) {}
