package pool

import "context"

// checking is a health check under way, which can take as long as a busy machine
// needs; nil: none is.
type checking struct {
	result chan error
	cancel context.CancelFunc
	ended  chan struct{}
}

// startCheck starts a check.
func startCheck(ctx context.Context, check func(context.Context) error) *checking {
	ctx, cancel := context.WithCancel(ctx)
	c := &checking{result: make(chan error, 1), cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		c.result <- check(ctx)
	}()
	return c
}

// done gets the result.
func (c *checking) done() <-chan error {
	if c == nil {
		return nil
	}
	return c.result
}

// stop ends the check, and waits until it has ended.
func (c *checking) stop() {
	if c != nil {
		c.cancel()
		<-c.ended
	}
}
