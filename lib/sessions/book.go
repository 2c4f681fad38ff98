// Package sessions is a book of virtual browsers: who uses which, until when, and what
// becomes of one that nobody uses or whose Chrome has ended. It knows no addresses, and
// not where a Chrome comes from. What is decided is pure (table.go); a Book does it.
//
// An Entry stays as its sessions come and go. It has one opening at most. Each opening
// has a goroutine of its own, which waits for the end of the one before. When an opening
// is replaced or dropped, its goroutine ends the session that it opened. That resolves
// every race.
package sessions

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/exit"
	"btools/lib/record"
	"btools/lib/virtual"
	"btools/lib/wait"
)

// Book keeps sessions. Set its fields before use, and Close it.
type Book struct {
	Policy
	// MakeDir returns the directory for what is saved, which nobody else may read; nil:
	// nothing is. Log takes what goes wrong, with this Noun for a session.
	MakeDir func(context.Context) (string, error)
	Log     *slog.Logger
	Noun    string

	mu       sync.Mutex
	table    table
	reserved map[Key]bool
	timer    wait.Timer
	closed   bool
	running  sync.WaitGroup
}

// Session is a *virtual.Session, or one that does more at its end.
type Session interface {
	Used() time.Time
	Done() <-chan struct{}
	Err() error
	Snapshot(context.Context) (*virtual.Snapshot, error)
	Look(context.Context) (*virtual.Snapshot, error)
	Stats() api.Stats
	// TellControl has a function called when a person takes control, and when that ends.
	TellControl(func(event, who string))
	End(context.Context) error
}

// Owner is what an entry is for.
type Owner interface {
	// Open opens its session on a Chrome, with what was saved unless that is nil. If the
	// context ends, nobody needs it any more. The book ends the session, also if there is
	// an error, unless it is nil.
	Open(ctx context.Context, from *virtual.Saved) (Session, error)
	// Tell tells that a session was created, hibernated, restored or ended, and why, or
	// taken or given_back by whom. It must not wait, nor call the book.
	Tell(event, why string)
	// Close is called when nothing of the entry is left.
	Close()
}

// life is what is running of an entry. The book's lock guards it.
type life struct {
	book    *Book
	owner   Owner
	opening *opening        // nil: it is asleep
	over    <-chan struct{} // closed when its openings so far have ended; nil: there were none
	gone    chan struct{}   // closed when nothing of it is left
	rested  wait.Broadcast  // it was hibernated or could not be

	saved    *virtual.Saved // what is kept while it runs, or with what it is hibernated; nil: nothing
	restored *record.Time   // when it came back last; nil: it was never hibernated
	crash    *api.Crash     // how its Chrome ended last; nil: it was saved before
	lost     []string       // what did not come back with it
	past     *api.Session   // the last one, while it is asleep; nil: there has been none
}

// opening is the opening of a session, and what came of it.
type opening struct {
	ctx     context.Context // ends when nobody needs it any more
	end     context.CancelFunc
	ready   chan struct{} // closed when the session is open, or is not
	session Session
	err     error
	kept    *record.Time // as of when it is kept; nil: it is not yet

	hibernate chan struct{} // has room for one
	todo      chan func()   // what is done while the session is not looked at
}

// endTimeout is how long the pages of a session may take to close before the
// session counts as ended.
const endTimeout = 5 * time.Second

// Why there is no session.
var (
	ErrClosed = &exit.Error{Code: exit.TryAgain, Err: errors.New("the program is stopping")}
	ErrEnded  = &exit.Error{Code: exit.TryAgain, Err: errors.New("the session was ended while it was being created")}
	ErrExists = errors.New("there is already such a session")

	errCalledOff = errors.New("another opening takes its place, or none")
)

// Use waits for the session with a key; leave it later. If there is none, it is created
// as create says. With isNew, there must be none.
func (b *Book) Use(ctx context.Context, k Key, isNew bool, create func() (Owner, Traits)) (*Entry, Session, error) {
	b.mu.Lock()
	e, err := b.enterLocked(k, isNew, create)
	if err != nil {
		b.mu.Unlock()
		return nil, nil, err
	}
	s, err := b.awaitUnlock(ctx, e)
	return e, s, err
}

func (b *Book) enterLocked(k Key, isNew bool, create func() (Owner, Traits)) (*Entry, error) {
	if b.closed {
		return nil, ErrClosed
	}
	e := b.table.entries[k]
	if e != nil {
		b.checkLocked(e) // before its own goroutine does: clients may return at once
		e = b.table.entries[k]
	}
	switch {
	case e != nil && isNew:
		return nil, ErrExists
	case e == nil:
		owner, traits := create()
		traits.Held = traits.Held || b.reserved[k]
		e = b.newEntry(k, owner, traits)
		if err := b.addLocked(e); err != nil {
			return nil, err
		}
	}
	return e, b.table.enter(e)
}

func (b *Book) newEntry(k Key, o Owner, t Traits) *Entry {
	t.Keeps = t.Keeps && b.MakeDir != nil
	return &Entry{Key: k, Traits: t, life: &life{book: b, owner: o, gone: make(chan struct{})}}
}

func (b *Book) addLocked(e *Entry) error {
	if b.table.entries == nil {
		b.table = table{b.Policy, map[Key]*Entry{}}
	}
	return b.table.add(e)
}

// Reserve reserves a key for a holder: once a client has created the session, it
// lasts until release ends it, however long nobody uses it.
func (b *Book) Reserve(k Key) (release func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.table.entries[k] != nil || b.reserved[k] {
		return nil, ErrExists
	}
	if b.reserved == nil {
		b.reserved = map[Key]bool{}
	}
	b.reserved[k] = true
	return func() {
		b.mu.Lock()
		delete(b.reserved, k)
		e := b.table.entries[k]
		b.mu.Unlock()
		if e != nil {
			b.End(context.Background(), []*Entry{e})
		}
	}, nil
}

// Hold adds a lasting session, which is opened when it is used: from what was saved,
// unless it is nil, and not before a channel is closed, unless that is nil.
func (b *Book) Hold(k Key, o Owner, from *virtual.Saved, after <-chan struct{}) *Entry {
	e := b.newEntry(k, o, Traits{Keeps: true, Held: true, Lasting: true})
	e.state, e.saved, e.over = Asleep, from, after
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.addLocked(e) // one that is asleep is no session too many
	}
	return e
}

// Use waits for the session of an entry that is held; leave it later.
func (e *Entry) Use(ctx context.Context) (Session, error) {
	e.book.mu.Lock()
	if err := e.book.table.enter(e); err != nil {
		e.book.mu.Unlock()
		return nil, err
	}
	return e.book.awaitUnlock(ctx, e)
}

// awaitUnlock waits, without the lock, for the session of an entry that its caller has
// entered. If it returns an error, the caller has left.
func (b *Book) awaitUnlock(ctx context.Context, e *Entry) (s Session, err error) {
	defer func() {
		if err != nil {
			e.Leave()
		}
	}()
	for {
		o, err := b.openingLocked(e)
		b.mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case <-o.ready:
			err = o.err
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err == nil && e.Lasting && hasCrashed(o.session) {
			select {
			case <-o.ctx.Done(): // its holder has said so
				err = errCalledOff
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		if err != errCalledOff {
			return o.session, err
		}
		b.mu.Lock()
	}
}

// openingLocked returns the opening of an entry, which is opened if it has none.
func (b *Book) openingLocked(e *Entry) (*opening, error) {
	b.checkLocked(e)
	switch {
	case !b.table.has(e):
		return nil, ErrEnded
	case e.opening != nil:
		return e.opening, nil
	case e.state == Asleep:
		if err := b.table.wake(e); err != nil {
			return nil, err
		}
	}
	o := &opening{ready: make(chan struct{}), hibernate: make(chan struct{}, 1), todo: make(chan func())}
	o.ctx, o.end = context.WithCancel(context.Background())
	before, over, from := e.over, make(chan struct{}), e.saved
	e.opening, e.over = o, over
	b.running.Go(func() {
		defer close(over)
		defer o.end()
		b.run(e, o, before, from)
	})
	return o, nil
}

// Leave notes that a user has left.
func (e *Entry) Leave() {
	b := e.book
	b.mu.Lock()
	defer b.mu.Unlock()
	switch calledOff := b.table.leave(e, time.Now()); {
	case calledOff && e.state == Creating:
		b.dropLocked(e)
	case calledOff:
		b.callOffLocked(e)
		e.state = Asleep
	default:
		b.sweepLocked()
	}
}

// callOffLocked makes the goroutine of an entry's opening end.
func (b *Book) callOffLocked(e *Entry) {
	if o := e.opening; o != nil {
		e.opening = nil
		o.end()
	}
}

// sweepLocked ends the sessions whose time is over, has those hibernated that
// nobody uses, and schedules the next sweep.
func (b *Book) sweepLocked() {
	now := time.Now()
	over, drowsy, again := b.table.due(now)
	for _, e := range over {
		b.finishLocked(e)
	}
	for _, e := range drowsy {
		e.opening.hibernate <- struct{}{}
	}
	if !again.IsZero() && !b.closed {
		b.timer.Start(again.Sub(now), b.sweep)
	}
}

func (b *Book) sweep() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweepLocked()
}

// run opens a session after another one has ended, and ends it when nobody needs it.
func (b *Book) run(e *Entry, o *opening, before <-chan struct{}, from *virtual.Saved) {
	var s Session
	err := errCalledOff
	if before == nil {
		s, err = e.owner.Open(o.ctx, from)
	} else {
		select {
		case <-before:
			s, err = e.owner.Open(o.ctx, from)
		case <-o.ctx.Done():
		}
	}
	if b.opened(e, o, s, err, from != nil) {
		b.attend(e, o)
	}
	if s != nil {
		ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
		defer cancel()
		s.End(ctx) // pages that do not close end with Chrome
	}
	if before != nil {
		<-before
	}
}

// opened notes what has come of an opening, and reports whether it is needed.
func (b *Book) opened(e *Entry, o *opening, s Session, err error, restored bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer close(o.ready)
	switch {
	case e.opening != o:
		o.err = errCalledOff
		return false
	case err != nil:
		o.err, e.opening = err, nil
		if b.table.failed(e) {
			b.finishLocked(e)
		}
		return false
	}
	o.session, e.past = s, nil
	event := "created"
	if restored {
		event, e.restored = "restored", new(record.Now())
		if e.lost = nil; e.saved != nil {
			e.lost = e.saved.Lost
		}
	}
	e.owner.Tell(event, "")
	s.TellControl(func(event, who string) { b.tellControl(e, s, event, who) })
	b.table.opened(e, s.Used)
	b.sweepLocked()
	return true
}

// tellControl notes that a person has taken over the session of an entry, which then stays as if it had a user, or has
// given it back.
func (b *Book) tellControl(e *Entry, s Session, event, who string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !wait.Closed(s.Done()) {
		e.owner.Tell(event, who)
	}
	if event == "taken" {
		e.persons++
		e.visited = true
		return
	}
	e.persons--
	e.left = time.Now()
	b.sweepLocked()
}

// attend looks after a session until it is not needed any more.
func (b *Book) attend(e *Entry, o *opening) {
	var due <-chan time.Time
	var last looks
	if e.Keeps {
		ticks := time.NewTicker(lookEvery)
		defer ticks.Stop()
		due = ticks.C
	}
	for {
		select {
		case <-o.ctx.Done():
			return
		case <-o.session.Done():
			b.mu.Lock()
			b.checkLocked(e)
			b.mu.Unlock()
			<-o.ctx.Done() // at once, unless its holder has to say so
			return
		case <-due:
			last.look(o.session.Used(), func() { b.look(e, o) })
		case <-o.hibernate:
			b.hibernate(e, o)
		case do := <-o.todo:
			do()
		}
	}
}

// hasCrashed reports whether a session has ended with its Chrome.
func hasCrashed(s Session) bool {
	return wait.Closed(s.Done()) && errors.Is(s.Err(), virtual.ErrBrowserEnded)
}

// checkLocked takes note if the session of an entry has ended by itself. If its Chrome
// has ended, it is hibernated with what is kept of it; the holder of a lasting one calls
// Lose. Otherwise a client has closed it.
func (b *Book) checkLocked(e *Entry) {
	o := e.opening
	if o == nil || o.session == nil || !wait.Closed(o.session.Done()) || b.closed {
		return
	}
	switch crashed := hasCrashed(o.session); {
	case e.Lasting && !crashed:
		e.forgetLocked()
		b.sleepLocked(e, "")
	case e.Lasting:
	case crashed && e.saved != nil:
		b.sleepLocked(e, o.session.Err().Error())
	default:
		b.dropLocked(e)
	}
}

// sleepLocked makes an entry Asleep that has a session; why says how its Chrome has
// ended, unless it is "".
func (b *Book) sleepLocked(e *Entry, why string) {
	e.past = new(e.infoLocked())
	used := e.opening.session.Used()
	e.used = func() time.Time { return used } // nothing of the session itself stays
	if e.crash = nil; why != "" && e.saved != nil {
		e.crash = &api.Crash{KeptAt: record.Time{Time: e.saved.At}, EndedAt: record.Now()}
		if kept := e.opening.kept; kept != nil { // it had not changed until then
			e.crash.KeptAt = *kept
		}
	}
	e.state = Asleep
	b.callOffLocked(e)
	e.rested.Wake()
	if e.saved != nil {
		e.owner.Tell("hibernated", why)
	}
}

// Lose notes that the Chrome of a lasting session has ended, or is about to: why says
// how. It reports whether the next user has its pages back.
func (e *Entry) Lose(why string) (kept bool) {
	b := e.book
	b.mu.Lock()
	defer b.mu.Unlock()
	b.checkLocked(e)
	if e.opening != nil && e.opening.session != nil {
		b.sleepLocked(e, why)
	}
	return e.saved != nil
}

// Replace ends the session of a lasting entry and forgets what is saved. It reports
// whether it was hibernated.
func (e *Entry) Replace() (hibernated bool) {
	b := e.book
	b.mu.Lock()
	defer b.mu.Unlock()
	hibernated = e.isHibernatedLocked()
	b.callOffLocked(e)
	e.forgetLocked()
	e.state = Asleep
	e.rested.Wake()
	return hibernated
}

// Release ends a lasting entry. With keeps, it returns what is saved. A client of
// another entry waits until the channel is closed, if it is not nil.
func (e *Entry) Release(keeps bool) (saved *virtual.Saved, over <-chan struct{}) {
	b := e.book
	b.mu.Lock()
	defer b.mu.Unlock()
	if keeps {
		saved, e.saved = e.saved, nil
	}
	b.dropLocked(e)
	return saved, e.over
}

// isHibernatedLocked reports whether an entry is hibernated, or is about to come back.
func (e *Entry) isHibernatedLocked() bool {
	return e.saved != nil && (e.state == Asleep || e.state == Waking)
}

// Info describes an entry; false: it has no session, and is not hibernated.
func (e *Entry) Info() (api.Session, bool) {
	e.book.mu.Lock()
	defer e.book.mu.Unlock()
	return e.infoLocked(), e.opening != nil && e.opening.session != nil || e.isHibernatedLocked()
}

func (e *Entry) infoLocked() api.Session {
	i := api.Session{Name: e.Name, Anonymous: e.Kind != Named}
	switch o := e.opening; {
	case o != nil && o.session != nil:
		i.KeptAt, i.Stats = o.kept, o.session.Stats()
	case e.past != nil:
		i = *e.past
		i.IdleSeconds = time.Since(e.used()).Round(time.Millisecond).Seconds()
	}
	i.Hibernation = api.Hibernation{Hibernated: e.isHibernatedLocked(), RestoredAt: e.restored, Unkept: i.Gaps}
	if e.restored != nil && !i.Hibernated {
		i.Crash, i.Lost = e.crash, e.lost
	}
	if i.Hibernated {
		i.TabCount = e.saved.Tabs
	}
	return i
}

// List describes the sessions, the oldest first.
func (b *Book) List() []api.Session {
	all := []api.Session{}
	for _, e := range b.Where(func(e *Entry) bool { return e.state != Creating }) {
		if i, ok := e.Info(); ok {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(a, b api.Session) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt.Time), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// Named returns the entries with a name, and their owners, including those that are
// still Creating if they are all.
func (b *Book) Named(name string, all bool) []*Entry {
	return b.Where(func(e *Entry) bool { return e.Name == name && (all || e.state != Creating) })
}

// Where returns the entries for which is returns true.
func (b *Book) Where(is func(*Entry) bool) (found []*Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.table.entries {
		if is(e) {
			found = append(found, e)
		}
	}
	return found
}

// Session returns the session that is open, without using it; nil: none is.
func (e *Entry) Session() Session {
	e.book.mu.Lock()
	defer e.book.mu.Unlock()
	if e.opening == nil {
		return nil
	}
	return e.opening.session
}

// NotOpen returns the error of who looks at an entry without an open session.
func (e *Entry) NotOpen() error {
	if i, _ := e.Info(); i.Hibernated {
		return control.Errorf(control.Unavailable, "the session is hibernated: its next use wakes it")
	}
	return control.Errorf(control.Unavailable, "nothing has used the session yet: its first use opens it")
}

// Owner returns what the entry is for.
func (e *Entry) Owner() Owner { return e.owner }

// dropLocked ends an entry.
func (b *Book) dropLocked(e *Entry) {
	if b.table.drop(e) {
		b.finishLocked(e)
	}
}

// finishLocked ends an entry that is no longer in the table.
func (b *Book) finishLocked(e *Entry) {
	b.callOffLocked(e)
	over, saved, began := e.over, e.saved, e.used != nil
	e.saved = nil
	b.running.Go(func() {
		if over != nil {
			<-over
		}
		saved.Remove()
		if began {
			e.owner.Tell("ended", "")
		}
		e.owner.Close()
		close(e.gone)
	})
}

// End ends entries, and returns when nothing of them is left.
func (b *Book) End(ctx context.Context, all []*Entry) error {
	b.mu.Lock()
	for _, e := range all {
		b.dropLocked(e)
	}
	b.mu.Unlock()
	for _, e := range all {
		select {
		case <-e.gone:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// EndAll ends all entries, and returns when nothing of them is left.
func (b *Book) EndAll(ctx context.Context) error {
	return b.End(ctx, b.Where(func(*Entry) bool { return true }))
}

// Close ends all entries for good.
func (b *Book) Close() {
	b.mu.Lock()
	b.closed = true
	b.timer.Stop()
	b.mu.Unlock()
	b.EndAll(context.Background())
	b.running.Wait()
}
