package book

import "slices"

// Stock tracks the sessions of a Chrome that nobody has yet, and how many to make.
// It has no lock and makes and ends nothing itself; callers must call its
// methods one at a time.
type Stock[S any] struct {
	IsDead func(S) bool // reports whether a session has ended

	target  int     // number of spare sessions to keep ready
	waiting int     // requests for a session
	spares  []S     // ready and unused, the oldest first
	errs    []error // why sessions could not be made: each is for one request
	making  int     // sessions being made, for requests or as spares
	failing bool    // the last attempt failed: make sessions only for requests
}

// maxConcurrent is how many sessions are made at the same time; Chrome makes
// most of them one after the other anyway.
const maxConcurrent = 4

// Take serves one of the requests that wait; false: there is nothing for it yet.
func (k *Stock[S]) Take() (s S, err error, ok bool) {
	k.spares = slices.DeleteFunc(k.spares, k.IsDead)
	switch {
	case len(k.spares) > 0:
		s, k.spares = k.spares[0], k.spares[1:]
	case len(k.errs) > 0:
		err, k.errs = k.errs[0], k.errs[1:]
	default:
		return s, nil, false
	}
	k.Leave()
	return s, err, true
}

// Wait notes that a request waits for a session; Take or Leave ends that.
func (k *Stock[S]) Wait() { k.waiting++ }

// Len returns the number of spare sessions.
func (k *Stock[S]) Len() int { return len(k.spares) }

// Lower lowers the number of spare sessions to keep ready by one, which is about to be taken.
func (k *Stock[S]) Lower() { k.target-- }

// Leave notes that a request does not wait any more.
func (k *Stock[S]) Leave() {
	k.waiting--
	k.errs = k.errs[:min(len(k.errs), k.waiting)]
}

// Start returns how many sessions to make now and counts them as being made.
// The caller must report each with Made or Failed.
func (k *Stock[S]) Start() (n int) {
	need := k.waiting - len(k.errs) - len(k.spares)
	if !k.failing {
		need += k.target
	}
	n = max(0, min(need, maxConcurrent)-k.making)
	k.making += n
	return n
}

// Made accepts a session that was made. It reports whether the session is
// surplus and must be ended.
func (k *Stock[S]) Made(s S) (surplus bool) {
	k.making--
	k.failing = false
	if len(k.spares) >= k.target+k.waiting {
		return true
	}
	k.spares = append(k.spares, s)
	return false
}

// Failed records that a session could not be made, which is the answer to one of the
// requests. No spares are made until Retry is called.
func (k *Stock[S]) Failed(err error) {
	k.making--
	k.failing = true
	if len(k.errs) < k.waiting {
		k.errs = append(k.errs, err)
	}
}

// Retry resumes making spares after a failure.
func (k *Stock[S]) Retry() { k.failing = false }

// SetTarget sets the number of spare sessions and returns the surplus ones,
// which must be ended.
func (k *Stock[S]) SetTarget(n int) (surplus []S) {
	k.target = n
	if most := n + k.waiting; len(k.spares) > most {
		surplus = slices.Clone(k.spares[most:])
		k.spares = k.spares[:most]
	}
	return surplus
}
