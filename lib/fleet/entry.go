package fleet

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/downloads"
	"btools/lib/exit"
	"btools/lib/fleet/book"
	"btools/lib/record"
	"btools/lib/virtual"
	"btools/lib/wait"
)

// An Entry stays as its sessions come and go. It has one opening at most. Each opening
// has a goroutine of its own, which waits for the end of the one before. When an opening
// is replaced or dropped, its goroutine ends the session that it opened. That resolves
// every race.

// Key identifies a session.
type Key = book.Key

// Session is a *virtual.Session, or one that does more at its end.
type Session interface {
	Used() time.Time
	Done() <-chan struct{}
	Err() error
	Snapshot(ctx context.Context, last bool) (*virtual.Snapshot, error)
	Look(context.Context) (*virtual.Snapshot, error)
	Stats() api.Stats
	// TellControl has a function called when a person takes control or is asked, and when that ends.
	TellControl(func(event, who string))
	End(context.Context) error
}

// Entry is a session of a fleet, from the decision to create it until it has to end. The fleet's lock guards it.
type Entry struct {
	book.Session[*Entry]
	fleet   *Fleet
	wanted  Wanted
	opening *opening        // nil: it is asleep
	over    <-chan struct{} // closed when its openings so far have ended; nil: there were none
	gone    chan struct{}   // closed when nothing of it is left
	rested  wait.Broadcast  // it was hibernated or could not be

	trace    Trace            // nil: none
	files    *downloads.Files // of its session, also while that is hibernated; nil: none
	isPlaced bool             // its trace and its downloads have been opened

	saved    *virtual.Saved // what is kept while it runs, or with what it is hibernated; nil: nothing
	restored *record.Time   // when it came back last; nil: it was never hibernated
	crash    *api.Crash     // how its Chrome ended last; nil: it was saved before
	lost     []string       // what did not come back with it
	past     *api.Session   // the last one, while it is asleep; nil: there has been none
}

// Why there is no session.
var (
	ErrClosed = &exit.Error{Code: exit.TryAgain, Err: errors.New("the program is stopping")}
	ErrEnded  = &exit.Error{Code: exit.TryAgain, Err: errors.New("the session was ended while it was being created")}

	errExists    = errors.New("there is already such a session")
	errCalledOff = errors.New("another opening takes its place, or none")
)

// use waits for the session with a key; its caller leaves it later. If there is none, it is created
// as wanted says, or with nil as the defaults do; one that is wanted must be new.
func (f *Fleet) use(ctx context.Context, k Key, wanted *Wanted) (*Entry, Session, error) {
	f.mu.Lock()
	e, err := f.enterLocked(k, wanted)
	if err != nil {
		f.mu.Unlock()
		return nil, nil, f.explain(err, k)
	}
	s, err := e.awaitUnlock(ctx)
	return e, s, f.explain(err, k)
}

func (f *Fleet) enterLocked(k Key, wanted *Wanted) (*Entry, error) {
	if f.closed {
		return nil, ErrClosed
	}
	e := f.entryLocked(k)
	if e != nil {
		e.checkLocked() // before its own goroutine does: clients may return at once
		e = f.entryLocked(k)
	}
	if e == nil {
		e = f.recallLocked(k)
	}
	switch {
	case e != nil && wanted != nil:
		return nil, errExists
	case e == nil:
		if wanted == nil {
			wanted = &f.Defaults
		}
		e = f.newEntry(k, *wanted, book.Traits{Keeps: f.keeps(k), Profile: f.isDefault(k), Held: f.reserved[k]})
		if err := f.addLocked(e); err != nil {
			return nil, err
		}
	}
	return e, f.table.Enter(&e.Session)
}

func (f *Fleet) newEntry(k Key, w Wanted, t book.Traits) *Entry {
	e := &Entry{fleet: f, wanted: w, gone: make(chan struct{})}
	e.Session = *book.NewSession(k, t, e)
	return e
}

// entryLocked returns the entry with a key; nil: there is none.
func (f *Fleet) entryLocked(k Key) *Entry {
	if s := f.table.Get(k); s != nil {
		return s.Of
	}
	return nil
}

func (f *Fleet) addLocked(e *Entry) error {
	f.table.Policy = f.Policy
	return f.table.Add(&e.Session)
}

// Reserve reserves a named session for a holder: once a client has created it, it lasts until
// release ends it, however long nobody uses it. It is an error if there is one with this name.
func (f *Fleet) Reserve(name string) (release func(), err error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	k := Key{Name: name}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.entryLocked(k) != nil || f.reserved[k] {
		return nil, f.explain(errExists, k)
	}
	if f.reserved == nil {
		f.reserved = map[Key]bool{}
	}
	f.reserved[k] = true
	return func() {
		f.mu.Lock()
		delete(f.reserved, k)
		e := f.entryLocked(k)
		f.mu.Unlock()
		if e != nil {
			f.end(context.Background(), []*Entry{e})
		}
	}, nil
}

// Hold adds a lasting session, which is opened when it is used: from what was kept,
// unless it is nil, and not before a channel is closed, unless that is nil.
func (f *Fleet) Hold(name string, w Wanted, from *Kept, after <-chan struct{}) *Entry {
	e := f.newEntry(Key{Name: name}, w, book.Traits{Keeps: f.Saves, Held: true, Lasting: true})
	e.over = after
	if from != nil {
		e.saved, e.files = from.saved, from.files
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.addLocked(e) // one that is asleep is no session too many
	}
	return e
}

// Use waits for the session of an entry that is held; leave it later.
func (e *Entry) Use(ctx context.Context) (Session, error) {
	e.fleet.mu.Lock()
	if err := e.fleet.table.Enter(&e.Session); err != nil {
		e.fleet.mu.Unlock()
		return nil, err
	}
	return e.awaitUnlock(ctx)
}

// awaitUnlock waits, without the lock, for the session of an entry that its caller has
// entered. If it returns an error, the caller has left.
func (e *Entry) awaitUnlock(ctx context.Context) (s Session, err error) {
	f := e.fleet
	defer func() {
		if err != nil {
			e.Leave()
		}
	}()
	for {
		o, err := e.openingLocked()
		f.mu.Unlock()
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
		switch err {
		case nil:
			return o.session, nil
		case errCalledOff:
			f.mu.Lock()
		default:
			return nil, err // the session may be opened just now
		}
	}
}

// openingLocked returns the opening of an entry, which is opened if it has none.
func (e *Entry) openingLocked() (*opening, error) {
	f := e.fleet
	e.checkLocked()
	switch {
	case !f.table.Has(&e.Session):
		return nil, ErrEnded
	case e.opening != nil:
		return e.opening, nil
	case e.State() == book.Asleep:
		if err := f.table.Wake(&e.Session); err != nil {
			return nil, err
		}
	}
	o := &opening{entry: e, ready: make(chan struct{}), drowsy: make(chan struct{}, 1), todo: make(chan func())}
	o.ctx, o.end = context.WithCancel(context.Background())
	before, over, from := e.over, make(chan struct{}), e.saved
	e.opening, e.over = o, over
	f.running.Go(func() {
		defer close(over)
		defer o.end()
		o.run(before, from)
	})
	return o, nil
}

// Leave notes that a user has left.
func (e *Entry) Leave() {
	f := e.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.IsFrozen() {
		defer e.rested.Wake()
	}
	switch calledOff := f.table.Leave(&e.Session, time.Now()); {
	case calledOff && e.State() == book.Creating:
		e.dropLocked()
	case calledOff:
		e.callOffLocked()
		f.table.Sleep(&e.Session, time.Time{})
	default:
		f.sweepLocked()
	}
}

// callOffLocked makes the goroutine of an entry's opening end.
func (e *Entry) callOffLocked() {
	if o := e.opening; o != nil {
		e.opening = nil
		o.end()
	}
}

// sweepLocked ends the sessions whose time is over, has those hibernated that
// nobody uses, and schedules the next sweep.
func (f *Fleet) sweepLocked() {
	now := time.Now()
	over, drowsy, again := f.table.Due(now)
	for _, s := range over {
		s.Of.finishLocked()
	}
	for _, s := range drowsy {
		s.Of.opening.drowsy <- struct{}{}
	}
	if !again.IsZero() && !f.closed {
		f.timer.Start(again.Sub(now), f.sweep)
	}
}

func (f *Fleet) sweep() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sweepLocked()
}

// tellControl notes that a person has taken over the session of an entry or is asked to, which then stays as if it had
// a user, or that this is over.
func (e *Entry) tellControl(s Session, event, who string) {
	f := e.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if !wait.Closed(s.Done()) {
		e.tell(Event{Event: event, Why: who})
	}
	if event == "taken" || event == "asked" {
		f.table.Take(&e.Session)
		return
	}
	f.table.GiveBack(&e.Session, time.Now())
	f.sweepLocked()
}

// checkLocked takes note if the session of an entry has ended by itself. If its Chrome
// has ended, it is hibernated with what is kept of it; the holder of a lasting one calls
// Lose. Otherwise a client has closed it.
func (e *Entry) checkLocked() {
	f := e.fleet
	o := e.opening
	if o == nil || o.session == nil || !wait.Closed(o.session.Done()) || f.closed {
		return
	}
	switch crashed := hasCrashed(o.session); {
	case e.Lasting && !crashed:
		e.forgetLocked()
		e.sleepLocked("")
	case e.Lasting:
	case crashed && e.saved != nil:
		e.sleepLocked(o.session.Err().Error())
	default:
		e.dropLocked()
	}
}

// sleepLocked makes an entry Asleep that has a session; why says how its Chrome has
// ended, unless it is "".
func (e *Entry) sleepLocked(why string) {
	f := e.fleet
	e.past = new(e.infoLocked())
	if e.crash = nil; why != "" && e.saved != nil {
		e.crash = &api.Crash{KeptAt: record.Time{Time: e.saved.At}, EndedAt: record.Now()}
		if kept := e.opening.kept; kept != nil { // it had not changed until then
			e.crash.KeptAt = *kept
		}
	}
	f.table.Sleep(&e.Session, e.opening.session.Used())
	e.callOffLocked()
	e.rested.Wake()
	if e.saved != nil {
		e.tell(Event{Event: "hibernated", Why: why})
	}
}

// Lose notes that the Chrome of a lasting session has ended, or is about to: why says
// how. It reports whether the next user has its pages back.
func (e *Entry) Lose(why string) (kept bool) {
	f := e.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	e.checkLocked()
	if e.opening != nil && e.opening.session != nil {
		e.sleepLocked(why)
	}
	return e.saved != nil
}

// Replace ends the session of a lasting entry and forgets what is saved. It reports
// whether it was hibernated.
func (e *Entry) Replace() (hibernated bool) {
	f := e.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	hibernated = e.isHibernatedLocked()
	e.callOffLocked()
	e.forgetLocked()
	f.table.Sleep(&e.Session, time.Time{})
	e.rested.Wake()
	return hibernated
}

// Release ends a lasting entry. With keeps, it returns what is kept of it, unless there is nothing. A client
// of another entry waits until the channel is closed, if it is not nil.
func (e *Entry) Release(keeps bool) (kept *Kept, over <-chan struct{}) {
	f := e.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if keeps && e.saved != nil {
		kept = &Kept{e.saved, e.files}
		e.saved, e.files = nil, nil
	}
	e.dropLocked()
	return kept, e.over
}

// Kept is what a session needs to go on in another entry.
type Kept struct {
	saved *virtual.Saved
	files *downloads.Files // nil: none
}

// Remove deletes what was kept and is not needed any more.
func (k *Kept) Remove() {
	k.saved.Remove()
	if k.files != nil {
		k.files.Close() // what cannot be deleted goes with the program
	}
}

// isHibernatedLocked reports whether an entry is hibernated, or is about to come back.
func (e *Entry) isHibernatedLocked() bool {
	return e.saved != nil && (e.State() == book.Asleep || e.State() == book.Waking)
}

// Info describes an entry; false: it has no session, and is not hibernated.
func (e *Entry) Info() (api.Session, bool) {
	e.fleet.mu.Lock()
	defer e.fleet.mu.Unlock()
	return e.infoLocked(), e.opening != nil && e.opening.session != nil || e.isHibernatedLocked()
}

func (e *Entry) infoLocked() api.Session {
	i := api.Session{Name: e.Name, Anonymous: e.Kind != book.Named}
	switch o := e.opening; {
	case o != nil && o.session != nil:
		i.KeptAt, i.Stats = o.kept, o.session.Stats()
		if o.fault != nil {
			i.Gaps = append(i.Gaps, "all that has changed since it was kept last: "+o.fault.Error())
		}
	case e.past != nil:
		i = *e.past
		i.IdleSeconds = time.Since(e.LastUse()).Round(time.Millisecond).Seconds()
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
func (f *Fleet) List() []api.Session {
	all := []api.Session{}
	for _, e := range f.where(func(e *Entry) bool { return e.State() != book.Creating }) {
		if i, ok := e.Info(); ok {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(a, b api.Session) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt.Time), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// named returns the entries with a name, including those that are still Creating if they are all.
func (f *Fleet) named(name string, all bool) []*Entry {
	f.mu.Lock()
	if k := (Key{Name: name}); f.entryLocked(k) == nil {
		f.recallLocked(k)
	}
	f.mu.Unlock()
	return f.where(func(e *Entry) bool { return e.Name == name && (all || e.State() != book.Creating) })
}

// where returns the entries for which is returns true.
func (f *Fleet) where(is func(*Entry) bool) (found []*Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.table.All() {
		if is(s.Of) {
			found = append(found, s.Of)
		}
	}
	return found
}

// Attach answers attach: a person looks at the session, unless none is open.
func (e *Entry) Attach(r api.AttachRequest) (any, error) {
	e.fleet.mu.Lock()
	defer e.fleet.mu.Unlock()
	switch {
	case e.opening != nil && e.opening.session != nil:
		return VirtualOf(e.opening.session).Taken(r), nil
	case e.isHibernatedLocked():
		return nil, control.Errorf(control.Unavailable, "the session is hibernated: its next use wakes it")
	}
	return nil, control.Errorf(control.Unavailable, "nothing has used the session yet: its first use opens it")
}

// IsTaken reports whether a person has control of the session.
func (e *Entry) IsTaken() bool {
	e.fleet.mu.Lock()
	defer e.fleet.mu.Unlock()
	return e.Session.IsTaken()
}

// dropLocked ends an entry.
func (e *Entry) dropLocked() {
	f := e.fleet
	if f.table.Drop(&e.Session) {
		e.finishLocked()
	}
}

// finishLocked ends an entry that is no longer in the table.
func (e *Entry) finishLocked() {
	f := e.fleet
	e.callOffLocked()
	over, saved, began := e.over, e.saved, !e.LastUse().IsZero()
	e.saved = nil
	if f.closed && f.pathOf(e.Key) != "" {
		saved = nil // it outlives the program
	}
	f.running.Go(func() {
		if over != nil {
			<-over
		}
		saved.Remove()
		if began {
			e.tell(Event{Event: "ended"})
		}
		e.close()
		close(e.gone)
	})
}

// end ends entries, and returns when nothing of them is left.
func (f *Fleet) end(ctx context.Context, all []*Entry) error {
	f.mu.Lock()
	for _, e := range all {
		e.dropLocked()
	}
	f.mu.Unlock()
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
func (f *Fleet) EndAll(ctx context.Context) error {
	return f.end(ctx, f.where(func(*Entry) bool { return true }))
}

// Close ends all entries for good.
func (f *Fleet) Close() {
	f.mu.Lock()
	f.closed = true
	f.timer.Stop()
	f.mu.Unlock()
	f.EndAll(context.Background())
	f.running.Wait()
}
