package coordinator

import "time"

// replaceEvery is how often it is looked whether such a process has calls left.
const replaceEvery = time.Second

// replace has the next calls of a child reach a new process, if hosts that know
// nothing of each other share it, it is known to ask them, and all that it does
// is to wait for hosts that may never come again, or was cancelled: it could
// not be told whose a question is. It goes on for those calls until they are
// over.
func (s *Session) replace(k *kid) {
	if !s.requests.table.Shared {
		return
	}
	p, _ := k.proc.Last()
	if p == nil || !p.curious.Load() || p.gone() != nil {
		return
	}
	var calls, awaiting int
	var cancelled bool
	s.read(func(t *table) {
		calls, cancelled = p.open()
		awaiting = t.WaitFor(p)
	})
	if calls != awaiting || calls == 0 && !cancelled || !s.children.replace(p, s.c.Limits.Replaced) {
		return
	}
	k.proc.Forget(p)
	s.do(func() {
		for left := 1; left > 0; left, _ = p.open() {
			select {
			case <-time.After(replaceEvery):
				continue
			case <-p.ended:
			case <-s.ctx.Done():
			}
			break
		}
		p.stop()
		s.children.finish(p)
	})
}
