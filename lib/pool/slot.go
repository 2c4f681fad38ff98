package pool

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"btools/lib/exit"
	"btools/lib/launch/options"
	"btools/lib/launcher"
	"btools/lib/pool/config"
	"btools/lib/proxy"
	"btools/lib/record"
)

// States of an instance.
const (
	Starting = "starting"
	Healthy  = "healthy"
	Failed   = "failed"
	Draining = "draining"
)

// Restarts are delayed after the first: twice as long each time, until a
// browser has been well for a while. Who waits for a browser that was launched
// and has ended does not wait for longer than firstDelay: only what can't be
// launched is tried ever more rarely.
const (
	firstDelay = time.Second
	maxDelay   = time.Minute
	wellAfter  = 5 * time.Minute
)

// never is the next try of an instance that is left as it is.
var never = time.Unix(1<<40, 0)

// retry says when a browser that has failed is launched again.
type retry struct {
	began time.Time     // when it was to be launched
	delay time.Duration // before the next launch, if it fails
}

// next is when the next launch is, at the latest and while somebody waits for
// it, and that in words.
func (r *retry) next(now time.Time, launched, not bool) (at, hurry time.Time, words string) {
	if now.Sub(r.began) > wellAfter {
		r.delay = 0
	}
	wait := r.delay
	if wait == 0 && !launched {
		wait = firstDelay
	}
	r.delay = min(max(2*wait, firstDelay), maxDelay)
	switch {
	case not:
		return never, never, "it is not replaced (RESTART=never)"
	case wait == 0:
		return now, now, "another one takes its place, without its pages"
	}
	at, hurry = now.Add(wait), now.Add(wait)
	if launched && wait > firstDelay {
		hurry = now.Add(firstDelay)
	}
	return at, hurry, fmt.Sprintf("another one is launched in %v", wait)
}

// whatBecame is what has become of a browser that failed, in words.
func whatBecame(launched bool) string {
	if launched {
		return "is gone"
	}
	return "could not be launched"
}

// reasonOf is why, as a holder is told.
func reasonOf(why error) string { return strings.TrimPrefix(FirstSentence(why.Error()), ended) }

// slot is one instance of a pool: its endpoint stays, the browser behind it
// comes and goes.
type slot struct {
	service  *Service
	poolName string
	n        int
	set      config.Settings
	proxy    *proxy.Proxy // nil if no browser of ours is launched
	addr     string       // of the proxy
	port     *port        // where its leases have their sessions; nil: it shares no browser
	wake     chan struct{}

	listener net.Listener
	after    []<-chan struct{} // its profile is another one's until these are closed
	gone     chan struct{}     // closed when its browser is no more, for good
	ctx      context.Context   // its life
	stop     context.CancelFunc

	group *group          // whose browser it shares; nil: it has its own, or none
	left  <-chan struct{} // closed when no page of its last lease is alive; or nil

	// Of run:
	retry
	had bool // there has been a browser, whose successor counts as a restart

	// Under the service's lock:
	pool     *pool // of the configuration that holds now
	state    string
	lease    *lease
	kept     string // whose connections may be there without one
	uses     int    // leases of this browser
	restarts int
	since    time.Time // when its browser was launched
	tryAt    time.Time // when a failed one is launched again
	hurryAt  time.Time // the same while somebody waits for it
	recycle  bool      // another browser before the next lease
	force    bool      // even under a lease
	retired  bool      // it ends with its lease
	check    check
}

// check is what the last look at its health saw.
type check struct {
	at         time.Time
	responsive bool
	err        string
}

// startLocked has the instance live; it is done with up when its first
// browser is there, or has failed.
func (s *slot) startLocked(up *sync.WaitGroup) {
	if s.port != nil {
		s.service.joinLocked(s, up)
		return
	}
	if s.proxy == nil {
		s.check = check{at: time.Now(), responsive: true}
		s.setLocked(Healthy)
		return
	}
	v := s.service
	up.Add(1)
	started := sync.OnceFunc(up.Done)
	v.running.Go(func() {
		s.proxy.Serve(s.ctx, s.listener)
		v.mu.Lock()
		v.retired = slices.DeleteFunc(v.retired, func(old *slot) bool { return old == s })
		v.mu.Unlock()
		close(s.gone)
	})
	v.running.Go(func() {
		defer started()
		for _, before := range s.after {
			started()
			select {
			case <-before:
			case <-s.ctx.Done():
			}
		}
		s.run(s.ctx, started)
	})
}

// close ends an instance that was never started.
func (s *slot) close() {
	s.stop()
	close(s.gone)
	if s.listener != nil {
		s.listener.Close()
	}
}

// retireLocked has the instance end, with its lease if it has one.
func (s *slot) retireLocked() {
	s.retired = true
	s.pool.queue.Remove(s.n)
	if s.proxy != nil {
		s.service.retired = append(s.service.retired, s)
	}
	if s.group != nil {
		s.group.leaveLocked(s)
	}
	if s.lease == nil {
		s.stop()
	}
}

// poke has the slot look at its state again.
func (s *slot) poke() {
	if s.group != nil {
		s.group.poke()
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// set puts the slot into a state, and into the queue if it may be leased.
func (s *slot) setLocked(state string) {
	if s.state != state {
		s.service.eventLocked(state, s, "", s.check.err)
	}
	s.state = state
	s.settleLocked()
}

// settleLocked has the slot in the queue exactly while it may be leased.
func (s *slot) settleLocked() {
	if s.retired {
		return // the queue's slot is another one's
	}
	if s.state == Healthy && s.lease == nil && !s.recycle && !s.pool.drained && !s.service.closing {
		s.pool.queue.Put(s.n)
	} else {
		s.pool.queue.Remove(s.n)
	}
}

// run keeps a browser behind the endpoint until the context ends. started is
// called when the first one is up, or has failed, or is left to the first
// connection.
func (s *slot) run(ctx context.Context, started func()) {
	launch := s.set.Start == "eager"
	for ctx.Err() == nil {
		why := s.live(ctx, launch, started)
		if why == crashed {
			if !s.untilNext(ctx) {
				return
			}
		} else {
			s.delay = 0
		}
		if why == idled {
			s.had = false
			s.service.mu.Lock()
			s.tellHolderLocked("was stopped after %v without a WebSocket; the next connection launches another one", s.set.IdleTimeout)
			s.service.mu.Unlock()
		}
		// One that is left to a connection has shown that it needs another try.
		launch = why == crashed || s.set.Start == "eager" && why != idled
	}
}

// live is the time of one browser, which is launched, or left to the first
// connection. It returns why it is over.
func (s *slot) live(ctx context.Context, launch bool, started func()) reason {
	v := s.service
	v.mu.Lock()
	fresh := s.recycle // a holder may have had one launched meanwhile
	s.recycle, s.force = false, false
	if launch {
		s.setLocked(Starting)
	}
	v.mu.Unlock()
	s.began = time.Now()
	var err error
	if launch {
		err = s.proxy.Relaunch(ctx, options.Options{}, fresh)
	} else if fresh {
		err = s.proxy.Stop(ctx)
	}
	if ctx.Err() != nil {
		return crashed
	}
	if err != nil {
		say := v.Log.With("pool", s.poolName, "instance", s.set.ID)
		if e := (*exit.Error)(nil); errors.As(err, &e) && e.Hint != "" {
			say = say.With("hint", e.Hint)
		}
		say.Error("no browser: " + err.Error())
		s.failed(err, false)
		started()
		return crashed
	}
	v.mu.Lock()
	if s.had {
		s.had = false
		s.restarts++
		v.metrics.restarts.WithLabelValues(s.poolName).Inc()
		v.eventLocked("restarted", s, "", "")
	}
	s.check = check{at: time.Now(), responsive: true}
	s.uses, s.since = 0, time.Now()
	if s.lease != nil {
		s.uses = 1
	}
	s.setLocked(Healthy)
	v.mu.Unlock()
	started()
	return s.hold(ctx, launch)
}

// failed notes that the browser is no more, or could not be launched, and when
// it is tried again.
func (s *slot) failed(why error, launched bool) {
	v := s.service
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	var next string
	s.tryAt, s.hurryAt, next = s.retry.next(now, launched, s.set.Restart == "never")
	s.check = check{at: now, err: why.Error()}
	s.tellHolderLocked("%s: %s; %s", whatBecame(launched), reasonOf(why), next)
	s.setLocked(Failed)
	if !s.retired {
		s.pool.tellLocked()
	}
}

// untilNext waits until a failed instance is to be launched again.
func (s *slot) untilNext(ctx context.Context) bool {
	v := s.service
	for {
		v.mu.Lock()
		at := s.tryAt
		if s.pool.queue.Waiting() > 0 {
			at = s.hurryAt
		}
		if s.force || s.recycle && at != never { // RESTART=never is not overruled by a lease's end
			at = time.Time{}
		}
		v.mu.Unlock()
		timer := time.NewTimer(time.Until(at))
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
			return true
		case <-s.wake:
			timer.Stop()
		}
	}
}

// Why a browser is no more.
type reason int

const (
	crashed  reason = iota // it ended by itself, or did not answer
	replaced               // another one is to take its place
	idled                  // nobody has used it: the next connection launches one
)

// ended begins the error of a browser that ended by itself.
const ended = "the browser ended: "

// hold watches a browser until it is no more. running is whether there is one
// yet.
func (s *slot) hold(ctx context.Context, running bool) reason {
	v := s.service
	s.had = s.had || running
	interval := time.NewTicker(s.set.HealthInterval)
	defer interval.Stop()
	for {
		st, _ := s.proxy.Status()
		switch {
		case st.State == proxy.Ready:
			running, s.had = true, true
		case st.State == proxy.Launching || st.State == proxy.Stopping:
		case !running && st.LastError == "": // it is left to the first connection
		case running && st.Exit == proxy.Unused:
			return idled
		case running && (st.Exit == proxy.ToldToStop || st.Exit == proxy.SessionLeft):
			v.mu.Lock()
			s.tellHolderLocked("was stopped (%s); another one takes its place, without its pages", st.LastExit)
			v.mu.Unlock()
			return replaced // though not from here
		default:
			why := ended + st.LastExit
			if st.LastError != "" {
				why = st.LastError
			}
			s.failed(errors.New(why), st.LastError == "")
			return crashed
		}
		v.mu.Lock()
		recycle := s.recycle && (s.lease == nil || s.force)
		v.mu.Unlock()
		if recycle {
			v.mu.Lock()
			s.tellHolderLocked("is replaced by bpool restart, without its pages")
			s.setLocked(Starting) // stopping it takes time
			v.mu.Unlock()
			s.proxy.Stop(ctx)
			return replaced
		}
		select {
		case <-ctx.Done():
			return crashed
		case <-s.wake:
		case <-interval.C:
			err := s.ping(ctx)
			if errors.Is(err, proxy.ErrNotAsked) {
				v.Log.Warn(err.Error(), "pool", s.poolName, "instance", s.set.ID)
				err = nil // it is not the browser that is sick
			}
			if err != nil && ctx.Err() == nil {
				v.Log.Warn("the browser does not answer: stopping it", "pool", s.poolName, "instance", s.set.ID, "why", err)
				s.failed(err, true)
				s.proxy.Stop(ctx)
				return crashed
			}
			heavy := s.heavy()
			v.mu.Lock()
			s.check = check{at: time.Now(), responsive: true}
			worn := heavy != "" && s.uses > 0 && !s.recycle // another one that nobody has used would be no smaller
			if worn {
				s.recycle = true
				s.settleLocked()
			}
			v.mu.Unlock()
			if worn {
				v.Log.Info("another browser takes the place of one that "+heavy, "pool", s.poolName, "instance", s.set.ID)
				s.poke()
			}
		}
	}
}

// heavy says that the browser has more memory than it may, "" if it has not.
func (s *slot) heavy() string {
	if _, rec := s.proxy.Status(); rec != nil && s.set.MaxMemory > 0 {
		if i, err := launcher.Endpoint(rec); err == nil {
			return heavy(s.set, i.PID)
		}
	}
	return ""
}

// ping asks the browser whether it is well.
func (s *slot) ping(ctx context.Context) error {
	_, rec := s.proxy.Status()
	if rec == nil {
		return nil // it is between two browsers: whoever notes its end says so
	}
	i, err := launcher.Endpoint(rec)
	if err != nil {
		return err
	}
	return proxy.Ping(ctx, i, s.set.HealthTimeout)
}

// hasBrowser reports whether there is a browser, or is about to be.
func (s *slot) hasBrowser() bool {
	if s.proxy == nil {
		return false
	}
	st, _ := s.proxy.Status()
	return st.State != proxy.Stopped
}

// browser is the record of the browser that is there; nil: there is none.
func (s *slot) browser() (rec *record.Record) {
	switch {
	case s.proxy != nil:
		_, rec = s.proxy.Status()
	case s.group != nil:
		s.service.mu.Lock()
		defer s.service.mu.Unlock()
		if c := s.group.chrome; c != nil {
			rec = c.Browser.Record
		}
	}
	return rec
}

// record is the instance as the holder of the lease sees it: at the endpoint
// that stays.
func (s *slot) record(lease string) *record.Record {
	out := record.New()
	if s.proxy == nil && s.port == nil {
		return out
	}
	i := record.Instance{Host: s.addr, Headless: s.set.Headless, Temporary: s.set.UserDataDir == ""}
	if rec := s.browser(); rec != nil {
		if raw := rec.Raw("browser"); raw != nil {
			out.SetRaw("browser", raw)
		}
		rec.Get("instance", &i)
	}
	if s.port != nil {
		// The browser and its profile are others' too.
		i.ID, i.SupervisorPID, i.UserDataDir, i.Protocol = "", 0, "", record.CDP
		s.port.address(&i, lease)
	} else {
		if i.Protocol == "" {
			i.Protocol = protocol(s.set.Browser)
		}
		s.stable(&i)
	}
	out.MustSet("instance", i)
	return out
}
