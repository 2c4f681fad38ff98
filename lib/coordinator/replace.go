package coordinator

import "time"

// replaceEvery is how often to check whether a replaced process has calls left.
const replaceEvery = time.Second

// replace gives a child's next calls a new process, if several hosts share the
// child, it may ask them, and all its calls await input (the hosts may never answer)
// or are cancelled: it would be unclear which host a question is for. The old process
// runs until its calls have ended.
func (sup *supervisor) replace(mayAsk bool) {
	h := sup.host
	if !h.table.Shared {
		return
	}
	p, _ := sup.proc.Last()
	if p == nil || !mayAsk && !h.server.catalog.Asks(sup.child) || p.Gone() != nil {
		return
	}
	var calls, awaiting int
	var cancelled bool
	h.read(func(t *table) {
		calls, cancelled = p.OpenCalls()
		awaiting = t.WaitFor(p)
	})
	if calls != awaiting || calls == 0 && !cancelled || !h.children.replace(p, h.server.Limits.Replaced) {
		return
	}
	sup.proc.Forget(p)
	h.do(func() {
		for left := 1; left > 0; left, _ = p.OpenCalls() {
			select {
			case <-time.After(replaceEvery):
				continue
			case <-p.Done():
			case <-h.ctx.Done():
			}
			break
		}
		p.Stop(nil)
		h.children.finish(p)
	})
}
