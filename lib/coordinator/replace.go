package coordinator

import "time"

// replaceEvery is how often to check whether a replaced process has calls left.
const replaceEvery = time.Second

// replace gives a child's next calls a new process, if several hosts share the
// child, it may ask them, and all its calls await input (the hosts may never answer)
// or are cancelled: it would be unclear which host a question is for. The old process
// runs until its calls have ended.
func (sup *supervisor) replace(mayAsk bool) {
	s := sup.session
	if !s.table.Shared {
		return
	}
	p, _ := sup.proc.Last()
	if p == nil || !mayAsk && !s.c.catalog.Asks(sup.child) || p.Gone() != nil {
		return
	}
	var calls, awaiting int
	var cancelled bool
	s.read(func(t *table) {
		calls, cancelled = p.OpenCalls()
		awaiting = t.WaitFor(p)
	})
	if calls != awaiting || calls == 0 && !cancelled || !s.children.replace(p, s.c.Limits.Replaced) {
		return
	}
	sup.proc.Forget(p)
	s.do(func() {
		for left := 1; left > 0; left, _ = p.OpenCalls() {
			select {
			case <-time.After(replaceEvery):
				continue
			case <-p.Done():
			case <-s.ctx.Done():
			}
			break
		}
		p.Stop(nil)
		s.children.finish(p)
	})
}
