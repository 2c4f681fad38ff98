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
	"btools/lib/wait"
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
// and has ended does not wait for longer than minRetryDelay: only what can't be
// launched is tried ever more rarely.
const (
	minRetryDelay = time.Second
	maxRetryDelay = time.Minute
	stableAfter   = 5 * time.Minute
)

// never is the next try of an instance that is left as it is.
var never = time.Unix(1<<40, 0)

// retry says when a browser that has failed is launched again.
type retry struct {
	began   time.Time // when it was to be launched
	backoff wait.Backoff
}

func newRetry() retry {
	return retry{backoff: wait.Backoff{First: minRetryDelay, Max: maxRetryDelay, Steady: stableAfter}}
}

// schedule is when the next launch is, at the latest and while somebody waits for
// it, and that in words.
func (r *retry) schedule(now time.Time, launched, noRestart bool) (at, onDemand time.Time, text string) {
	least := time.Duration(0)
	if !launched {
		least = minRetryDelay
	}
	delay := r.backoff.Next(now.Sub(r.began), least)
	switch {
	case noRestart:
		return never, never, "it is not replaced (RESTART=never)"
	case delay == 0:
		return now, now, "another one takes its place, without its pages"
	}
	at, onDemand = now.Add(delay), now.Add(delay)
	if launched && delay > minRetryDelay {
		onDemand = now.Add(minRetryDelay)
	}
	return at, onDemand, fmt.Sprintf("another one is launched in %v", delay)
}

// failureText is what has become of a browser that failed, in words.
func failureText(launched bool) string {
	if launched {
		return "is gone"
	}
	return "could not be launched"
}

// briefReason is why, as a holder is told.
func briefReason(why error) string {
	return strings.TrimPrefix(FirstSentence(why.Error()), endedPrefix)
}

// slot is one instance of a pool: its endpoint stays, the browser behind it
// comes and goes.
type slot struct {
	service  *Service
	poolName string
	number   int
	set      config.Settings
	proxy    *proxy.Proxy   // nil if no browser of ours is launched
	addr     string         // of the proxy
	sessions *sessionServer // where its leases have their sessions; nil: it shares no browser
	wakeup   chan struct{}

	listener        net.Listener
	profileReleased []<-chan struct{} // its profile is another one's until these are closed
	gone            chan struct{}     // closed when its browser is no more, for good
	ctx             context.Context   // its life
	stop            context.CancelFunc

	group           *group          // whose browser it shares; nil: it has its own, or none
	lastPagesClosed <-chan struct{} // closed when no page of its last lease is alive; or nil

	// Used by run:
	retry
	hadBrowser bool // there has been a browser, whose successor counts as a restart

	// Under the service's lock:
	pool          *pool // of the configuration that holds now
	state         string
	lease         *lease
	keptFor       string // whose connections may be there without one
	uses          int    // leases of this browser
	restarts      int
	launchedAt    time.Time // when its browser was launched
	retryAt       time.Time // when a failed one is launched again
	demandRetryAt time.Time // the same while somebody waits for it
	replace       bool      // another browser before the next lease
	forceReplace  bool      // even under a lease
	retired       bool      // it ends with its lease
	check         check
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
	if s.sessions != nil {
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
		for _, before := range s.profileReleased {
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
	s.pool.queue.Remove(s.number)
	if s.proxy != nil {
		s.service.retired = append(s.service.retired, s)
	}
	if s.group != nil {
		s.group.removeLocked(s)
	}
	if s.lease == nil {
		s.stop()
	}
}

// wake has the slot look at its state again.
func (s *slot) wake() {
	if s.group != nil {
		s.group.wake()
		return
	}
	select {
	case s.wakeup <- struct{}{}:
	default:
	}
}

// setLocked puts the slot into a state, and into the queue if it may be leased.
func (s *slot) setLocked(state string) {
	if s.state != state {
		s.service.eventLocked(state, s, "", s.check.err)
	}
	s.state = state
	s.syncQueueLocked()
}

// syncQueueLocked has the slot in the queue exactly while it may be leased.
func (s *slot) syncQueueLocked() {
	if s.retired {
		return // the queue's slot is another one's
	}
	if s.state == Healthy && s.lease == nil && !s.replace && !s.pool.drained && !s.service.closing {
		s.pool.queue.Put(s.number)
	} else {
		s.pool.queue.Remove(s.number)
	}
}

// run keeps a browser behind the endpoint until the context ends. started is
// called when the first one is up, or has failed, or is left to the first
// connection.
func (s *slot) run(ctx context.Context, started func()) {
	launch := s.set.Start == "eager"
	for ctx.Err() == nil {
		why := s.runBrowser(ctx, launch, started)
		if why == crashed {
			if !s.waitForRetry(ctx) {
				return
			}
		} else {
			s.backoff.Reset()
		}
		if why == idled {
			s.hadBrowser = false
			s.service.mu.Lock()
			s.notifyHolderLocked("was stopped after %v without a WebSocket; the next connection launches another one",
				s.set.IdleTimeout)
			s.service.mu.Unlock()
		}
		// One that is left to a connection has shown that it needs another try.
		launch = why == crashed || s.set.Start == "eager" && why != idled
	}
}

// runBrowser is the time of one browser, which is launched, or left to the first
// connection. It returns why it is over.
func (s *slot) runBrowser(ctx context.Context, launch bool, started func()) reason {
	v := s.service
	v.mu.Lock()
	fresh := s.replace // a holder may have had one launched meanwhile
	s.replace, s.forceReplace = false, false
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
		log := v.Log.With("pool", s.poolName, "instance", s.set.ID)
		if e := (*exit.Error)(nil); errors.As(err, &e) && e.Hint != "" {
			log = log.With("hint", e.Hint)
		}
		log.Error("no browser: " + err.Error())
		s.recordFailure(err, false)
		started()
		return crashed
	}
	v.mu.Lock()
	if s.hadBrowser {
		s.hadBrowser = false
		s.restarts++
		v.metrics.restarts.WithLabelValues(s.poolName).Inc()
		v.eventLocked("restarted", s, "", "")
	}
	s.check = check{at: time.Now(), responsive: true}
	s.uses, s.launchedAt = 0, time.Now()
	if s.lease != nil {
		s.uses = 1
	}
	s.setLocked(Healthy)
	v.mu.Unlock()
	started()
	return s.watch(ctx, launch)
}

// recordFailure notes that the browser is no more, or could not be launched, and when
// it is tried again.
func (s *slot) recordFailure(why error, launched bool) {
	v := s.service
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	var next string
	s.retryAt, s.demandRetryAt, next = s.retry.schedule(now, launched, s.set.Restart == "never")
	s.check = check{at: now, err: why.Error()}
	s.notifyHolderLocked("%s: %s; %s", failureText(launched), briefReason(why), next)
	s.setLocked(Failed)
	if !s.retired {
		s.pool.failWaitersLocked()
	}
}

// waitForRetry waits until a failed instance is to be launched again.
func (s *slot) waitForRetry(ctx context.Context) bool {
	v := s.service
	for {
		v.mu.Lock()
		at := s.retryAt
		if s.pool.queue.Waiting() > 0 {
			at = s.demandRetryAt
		}
		if s.forceReplace || s.replace && at != never { // RESTART=never is not overruled by a lease's end
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
		case <-s.wakeup:
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

// endedPrefix begins the error of a browser that ended by itself.
const endedPrefix = "the browser ended: "

// watch watches a browser until it is no more. running is whether there is one
// yet.
func (s *slot) watch(ctx context.Context, running bool) reason {
	v := s.service
	s.hadBrowser = s.hadBrowser || running
	interval := time.NewTicker(s.set.HealthInterval)
	defer interval.Stop()
	for {
		st, _ := s.proxy.Status()
		switch {
		case st.State == proxy.Ready:
			running, s.hadBrowser = true, true
		case st.State == proxy.Launching || st.State == proxy.Stopping:
		case !running && st.LastError == "": // it is left to the first connection
		case running && st.Exit == proxy.Unused:
			return idled
		case running && (st.Exit == proxy.ToldToStop || st.Exit == proxy.SessionLeft):
			v.mu.Lock()
			s.notifyHolderLocked("was stopped (%s); another one takes its place, without its pages", st.LastExit)
			v.mu.Unlock()
			return replaced // though not from here
		default:
			why := endedPrefix + st.LastExit
			if st.LastError != "" {
				why = st.LastError
			}
			s.recordFailure(errors.New(why), st.LastError == "")
			return crashed
		}
		v.mu.Lock()
		replace := s.replace && (s.lease == nil || s.forceReplace)
		v.mu.Unlock()
		if replace {
			v.mu.Lock()
			s.notifyHolderLocked("is replaced by bpool restart, without its pages")
			s.setLocked(Starting) // stopping it takes time
			v.mu.Unlock()
			s.proxy.Stop(ctx)
			return replaced
		}
		select {
		case <-ctx.Done():
			return crashed
		case <-s.wakeup:
		case <-interval.C:
			err := s.ping(ctx)
			if errors.Is(err, proxy.ErrNotChecked) {
				v.Log.Warn(err.Error(), "pool", s.poolName, "instance", s.set.ID)
				err = nil // it is not the browser that is sick
			}
			if err != nil && ctx.Err() == nil {
				v.Log.Warn("the browser does not answer: stopping it", "pool", s.poolName, "instance", s.set.ID, "why", err)
				s.recordFailure(err, true)
				s.proxy.Stop(ctx)
				return crashed
			}
			heavy := s.memoryExcess()
			v.mu.Lock()
			s.check = check{at: time.Now(), responsive: true}
			replace := heavy != "" && s.uses > 0 && !s.replace // another one that nobody has used would be no smaller
			if replace {
				s.replace = true
				s.syncQueueLocked()
			}
			v.mu.Unlock()
			if replace {
				v.Log.Info("another browser takes the place of one that "+heavy, "pool", s.poolName, "instance", s.set.ID)
				s.wake()
			}
		}
	}
}

// memoryExcess says that the browser has more memory than it may, "" if it has not.
func (s *slot) memoryExcess() string {
	if _, rec := s.proxy.Status(); rec != nil && s.set.MaxMemory > 0 {
		if i, err := launcher.Endpoint(rec); err == nil {
			return memoryExcess(s.set, i.PID)
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
	if s.proxy == nil && s.sessions == nil {
		return out
	}
	i := record.Instance{Host: s.addr, Headless: s.set.Headless, Temporary: s.set.UserDataDir == ""}
	if rec := s.browser(); rec != nil {
		if raw := rec.Raw("browser"); raw != nil {
			out.SetRaw("browser", raw)
		}
		rec.Get("instance", &i)
	}
	if s.sessions != nil {
		// The browser and its profile are others' too.
		i.ID, i.SupervisorPID, i.UserDataDir, i.Protocol = "", 0, "", record.CDP
		s.sessions.setAddresses(&i, lease)
	} else {
		if i.Protocol == "" {
			i.Protocol = protocol(s.set.Browser)
		}
		s.setStableAddresses(&i)
	}
	out.MustSet("instance", i)
	return out
}
