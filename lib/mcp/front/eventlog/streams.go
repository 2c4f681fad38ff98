package eventlog

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Limits bound the events that are kept, in number and in bytes.
type Limits struct {
	// Unsent and UnsentBytes bound the events of a stream whose host does not
	// read. UnsentBytes also bounds those of all finished streams together.
	Unsent, UnsentBytes int
	// SentBytes bounds the events that were sent and are kept for a host that
	// did not get them: of a stream, and of all finished streams together.
	SentBytes int
	// Finished is how many finished streams are kept.
	Finished int
}

// DefaultLimits are those of New.
var DefaultLimits = Limits{Unsent: 16 << 10, UnsentBytes: 64 << 20, SentBytes: 256 << 10, Finished: 256}

// Stream is the events of one HTTP response, or of several if its host loses
// one and resumes.
type Stream struct {
	number   int                 // in the IDs of its events
	rename   func([]byte) []byte // turns a message into the host's; nil: it is
	more     chan struct{}       // has one element if there is something new
	events   [][]byte            // that are kept
	dropped  int                 // events before these
	size     int                 // of the events that are kept, in bytes
	sent     int                 // events, with those that are dropped
	open     int                 // requests that it has not answered
	closed   bool                // no more events will come
	listener int                 // the number of the latest listener
	attached bool                // the latest listener has not left
}

// wake tells the listener that there is something new. It never blocks.
func (st *Stream) wake() {
	select {
	case st.more <- struct{}{}:
	default:
	}
}

// end is the number of the last event.
func (st *Stream) end() int { return st.dropped + len(st.events) }

// streams are all streams of a log. It has no lock: its methods are called one
// at a time.
type streams struct {
	Limits
	once     bool
	answers  map[string]*Stream // by the ID of each open request
	all      map[int]*Stream
	last     int
	finished []*Stream // the oldest first
	general  *Stream   // of messages that belong to no request
}

func newStreams(once bool, limits Limits) *streams {
	s := &streams{Limits: limits, once: once, answers: map[string]*Stream{}, all: map[int]*Stream{}}
	s.general = s.make()
	return s
}

func (s *streams) make() *Stream {
	st := &Stream{number: s.last, more: make(chan struct{}, 1)}
	s.all[st.number] = st
	s.last++
	return st
}

func (s *streams) begin(rename func([]byte) []byte, ids []string) (st *Stream, taken string) {
	for i, id := range ids {
		if s.answers[id] != nil || slices.Contains(ids[:i], id) {
			return nil, id
		}
	}
	st = s.make()
	st.rename, st.open = rename, len(ids)
	for _, id := range ids {
		s.answers[id] = st
	}
	return st, ""
}

func (s *streams) add(id string, last bool, message []byte) {
	st := s.answers[id]
	if st == nil && (last || s.once) {
		return // nobody waits for it
	}
	if st == nil {
		st = s.general
	}
	if message != nil {
		s.append(st, message)
	}
	if last {
		delete(s.answers, id)
		if st.open--; st.open == 0 {
			st.closed = true
			s.finish(st)
		}
	}
	st.wake()
}

// append adds an event, and drops the oldest ones beyond the limits.
func (s *streams) append(st *Stream, message []byte) {
	if st.rename != nil {
		message = st.rename(message)
	}
	// A CR ends a line of an event too. JSON has it only as white space.
	message = bytes.ReplaceAll(message, []byte{'\r'}, []byte{' '})
	st.events = append(st.events, message)
	st.size += len(message)
	for len(st.events) > s.Unsent ||
		len(st.events) > 1 && (st.size > s.UnsentBytes || st.sent > st.dropped && st.size > s.SentBytes) {
		st.size -= len(st.events[0])
		st.events[0] = nil
		st.events = st.events[1:]
		st.dropped++
	}
}

// finish keeps a finished stream for a host that resumes it, and forgets others
// beyond the limits, first those that were sent.
func (s *streams) finish(st *Stream) {
	if s.once {
		delete(s.all, st.number)
		return
	}
	s.finished = append(s.finished, st)
	size := 0
	for _, f := range s.finished {
		size += f.size
	}
	var kept []*Stream
	for i, f := range s.finished {
		sent := f.sent == f.end()
		tooMany := i == 0 && len(s.finished) > s.Finished
		if f != st && (tooMany || size > s.UnsentBytes || sent && size > s.SentBytes) {
			size -= f.size
			delete(s.all, f.number)
			continue
		}
		kept = append(kept, f)
	}
	s.finished = kept
}

func (s *streams) drop(id string) {
	if st := s.answers[id]; st != nil {
		delete(s.answers, id)
		delete(s.all, st.number)
	}
}

func (s *streams) close() {
	for _, st := range s.all {
		st.closed = true
		st.wake()
	}
}

func (s *streams) find(event string) (st *Stream, from int, err error) {
	number, count, _ := strings.Cut(event, "-")
	n, err := strconv.Atoi(number)
	from, err2 := strconv.Atoi(count)
	if st = s.all[n]; err != nil || err2 != nil || st == nil || from < st.dropped || from > st.end() {
		return nil, 0, fmt.Errorf("the event %q is no longer kept", event)
	}
	return st, from, nil
}

func (s *streams) attach(st *Stream) (listener int) {
	if st.attached {
		st.wake() // the listener before, which is to leave
	}
	st.listener++
	st.attached = true
	return st.listener
}

func (s *streams) detach(st *Stream, listener int) {
	if st.listener == listener {
		st.attached = false
	}
}

func (s *streams) since(st *Stream, from, listener int) (first int, events [][]byte, over, current bool) {
	if st.listener != listener {
		return 0, nil, true, false
	}
	first = max(from, st.dropped)
	return first, slices.Clone(st.events[first-st.dropped:]), st.closed, true
}

func (s *streams) idle() bool { return !s.general.attached && len(s.answers) == 0 }
