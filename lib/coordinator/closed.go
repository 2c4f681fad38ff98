package coordinator

import "btools/lib/wait"

func closeOnce(c chan struct{}) {
	if !wait.Closed(c) {
		close(c)
	}
}
