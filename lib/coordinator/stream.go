package coordinator

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// keepAlive is how often a stream that has nothing to say says so.
	keepAlive = 15 * time.Second
	// retryAfter is how long a host is asked to wait until it comes back to a
	// stream that has broken off, in milliseconds.
	retryAfter = 500
	// maxUnsaid bounds what waits for a host that does not listen or read: in
	// messages, and in bytes.
	maxUnsaid, maxUnsaidBytes = 16 << 10, 64 << 20
	// maxSaid bounds what is kept of what was said, for hosts that did not get
	// it, in bytes: of a stream, and of those that are over. These are maxOver
	// at most.
	maxSaid, maxOver = 1 << 20, 256
)

// streams are those of a session, for hosts that come back to one.
type streams struct {
	alive func() // is called while somebody listens
	once  bool   // nobody comes back to a stream: its host has no session
	flow  *flow  // of all that is written by HTTP

	mu      sync.Mutex
	answers map[string]*stream // by the ID of the request that it answers
	all     map[int]*stream
	last    int
	over    []*stream // the oldest first
	general *stream   // what belongs to no request
}

// stream is what is said in one HTTP response, or in several, if a host loses
// it and comes back.
type stream struct {
	n        int                 // its number, in the IDs of its events
	rename   func([]byte) []byte // makes a message the host's; nil: it is
	more     chan struct{}       // has one element if there is something
	events   [][]byte            // messages
	gone     int                 // how many were before these
	size     int                 // of them, in bytes
	told     int                 // how many are said, with those before
	open     int                 // requests that it has not answered
	closed   bool                // no more will come
	listener int                 // numbers who listens; who did before is to leave
	taken    bool                // somebody listens
}

func newStreams(f *flow) *streams {
	s := &streams{flow: f, answers: map[string]*stream{}, all: map[int]*stream{}}
	s.general = s.addLocked()
	return s
}

func (s *streams) addLocked() *stream {
	st := &stream{n: s.last, more: make(chan struct{}, 1)}
	s.all[st.n] = st
	s.last++
	return st
}

// begin makes the stream of the requests of one message. If one with an ID of
// theirs is being answered already, it returns that ID instead.
func (s *streams) begin(rename func([]byte) []byte, ids ...string) (st *stream, taken string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, id := range ids {
		if s.answers[id] != nil || slices.Contains(ids[:i], id) {
			return nil, id
		}
	}
	st = s.addLocked()
	st.rename, st.open = rename, len(ids)
	for _, id := range ids {
		s.answers[id] = st
	}
	return st, ""
}

// add has a message said by the stream of its request, or by the general one.
// The last one of its last request ends a stream, with a message or without.
func (s *streams) add(id string, last bool, message []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.answers[id]
	if st == nil && (last || s.once) {
		return // nobody waits for it
	}
	if st == nil {
		st = s.general
	}
	if message != nil {
		if st.rename != nil {
			message = st.rename(message)
		}
		// A line of an event ends with a CR too, which JSON has as space only.
		message = bytes.ReplaceAll(message, []byte{'\r'}, []byte{' '})
		st.events = append(st.events, message)
		st.size += len(message)
		for len(st.events) > maxUnsaid || len(st.events) > 1 && (st.size > maxUnsaidBytes || st.told > st.gone && st.size > maxSaid) {
			st.size -= len(st.events[0])
			st.events[0] = nil
			st.events = st.events[1:]
			st.gone++
		}
	}
	if last {
		delete(s.answers, id)
		if st.open--; st.open == 0 {
			st.closed = true
			s.overLocked(st)
		}
	}
	st.wake()
}

// overLocked keeps a stream that is over for a host that comes back to it, and
// forgets others: those that are said first.
func (s *streams) overLocked(st *stream) {
	if s.once {
		delete(s.all, st.n)
		return
	}
	s.over = append(s.over, st)
	size := 0
	for _, o := range s.over {
		size += o.size
	}
	s.over = slices.DeleteFunc(s.over, func(o *stream) bool {
		said := o.told == o.gone+len(o.events)
		forget := o != st && (size > maxUnsaidBytes || said && size > maxSaid || o == s.over[0] && len(s.over) > maxOver)
		if forget {
			size -= o.size
			delete(s.all, o.n)
		}
		return forget
	})
}

func (st *stream) wake() {
	select {
	case st.more <- struct{}{}:
	default:
	}
}

// drop forgets a request and what was to be said of it.
func (s *streams) drop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.answers[id]; st != nil {
		delete(s.answers, id)
		delete(s.all, st.n)
	}
}

// end has every stream end.
func (s *streams) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.all {
		st.closed = true
		st.wake()
	}
}

// event is the stream of an event, and how many of its events came up to that.
func (s *streams) event(event string) (*stream, int, error) {
	number, count, _ := strings.Cut(event, "-")
	n, err := strconv.Atoi(number)
	at, err2 := strconv.Atoi(count)
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.all[n]
	if err != nil || err2 != nil || st == nil || at < st.gone || at > st.gone+len(st.events) {
		return nil, 0, fmt.Errorf("the event %q is not kept (any more)", event)
	}
	return st, at, nil
}

// attend has a caller listen to a stream, in place of who does: that may be a
// connection whose host has gone, which is not known until it is written to.
// It returns the caller's number.
func (s *streams) attend(st *stream) (me int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.taken {
		st.wake() // who did
	}
	st.listener++
	st.taken = true
	return st.listener
}

// next are the events from one on, or from the first one that is kept, and
// whether the stream is over with them. Ours is false if somebody else listens
// now.
func (s *streams) next(st *stream, from, me int) (first int, events [][]byte, over, ours bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.listener != me {
		return 0, nil, true, false
	}
	first = max(from, st.gone)
	return first, slices.Clone(st.events[first-st.gone:]), st.closed, true
}

// unsaid is the first event that is not said.
func (s *streams) unsaid(st *stream) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return st.told
}

// said notes that events are said.
func (s *streams) said(st *stream, to int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.told = max(st.told, to)
}

// idle reports whether nobody listens.
func (s *streams) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.general.taken && len(s.answers) == 0
}

// leave ends listening.
func (s *streams) leave(st *stream, me int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.listener == me {
		st.taken = false
	}
}

// say writes a stream as server-sent events, from one on, until its last
// message or until the host is gone.
func (s *streams) say(w http.ResponseWriter, r *http.Request, st *stream, from, me int) {
	defer s.leave(st, me)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache, no-transform")
	w.WriteHeader(http.StatusOK)
	out := s.flow.to(w)
	defer out.end()
	if !s.once && resumes(r) { // an event without data: where to come back to
		fmt.Fprintf(out, "id: %d-%d\nretry: %d\ndata: \n\n", st.n, from, retryAfter)
	}
	if out.flush() != nil {
		return
	}
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		first, events, over, ours := s.next(st, from, me)
		if !ours {
			st.wake() // whoever listens now
			return
		}
		from = first
		for _, message := range events {
			from++
			id := ""
			if !s.once {
				id = fmt.Sprintf("id: %d-%d\n", st.n, from)
			}
			if _, err := fmt.Fprintf(out, "%sevent: message\ndata: %s\n\n", id, message); err != nil {
				return
			}
		}
		if len(events) > 0 && out.flush() != nil {
			return
		}
		s.said(st, from)
		if over {
			return
		}
		select {
		case <-st.more:
		case <-tick.C:
			s.alive()
			if _, err := io.WriteString(out, ": alive\n\n"); err != nil || out.flush() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// resumes reports whether a host knows events without data; those of protocols
// before take them for messages.
func resumes(r *http.Request) bool { return r.Header.Get("Mcp-Protocol-Version") >= legacy }
