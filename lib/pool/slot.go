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
	"btools/lib/liveness"
	"btools/lib/pool/config"
	"btools/lib/proxy"
	"btools/lib/record"
	"btools/lib/wait"
)

// States of an instance.
const (
	Starting = "starting"
	Awaiting = "waiting" // for a browser to join by its extension
	Healthy  = "healthy"
	Failed   = "failed"
	Draining = "draining"
)

// A browser that ends is replaced at once the first time, then after a delay
// that doubles each time, until a browser has been stable for a while. While a
// request waits for a browser that was launched and then ended, the delay is at
// most minRetryDelay. Only launches that fail are retried with the full delay.
const (
	minRetryDelay = time.Second
	maxRetryDelay = time.Minute
	stableAfter   = 5 * time.Minute
)

// never is the next retry of an instance that is not retried.
var never = time.Unix(1<<40, 0)

// retry schedules the relaunch of a browser that failed.
type retry struct {
	began   time.Time // when the last launch began
	backoff wait.Backoff
}

func newRetry() retry {
	return retry{backoff: wait.Backoff{First: minRetryDelay, Max: maxRetryDelay, Steady: stableAfter}}
}

// schedule returns when to launch the next browser, when to launch it if a
// request waits, and a description of that for people.
func (r *retry) schedule(now time.Time, launched, noRestart bool) (at, onDemand time.Time, text string) {
	least := time.Duration(0)
	if !launched {
		least = minRetryDelay
	}
	delay := r.backoff.Next(now.Sub(r.began), least)
	switch {
	case noRestart:
		return never, never, "it will not be replaced (RESTART=never)"
	case delay == 0:
		return now, now, "a new browser replaces it; its pages are lost"
	}
	at, onDemand = now.Add(delay), now.Add(delay)
	if launched && delay > minRetryDelay {
		onDemand = now.Add(minRetryDelay)
	}
	return at, onDemand, fmt.Sprintf("another one is launched in %v", delay)
}

// failureText says how a browser failed.
func failureText(launched bool) string {
	if launched {
		return "is gone"
	}
	return "could not be launched"
}

// briefReason returns the reason in the form that a holder gets.
func briefReason(why error) string {
	return strings.TrimPrefix(FirstSentence(why.Error()), endedPrefix)
}

// slot is one instance of a pool. Its endpoint stays the same while browsers
// come and go behind it.
type slot struct {
	service  *Service
	poolName string
	number   int
	set      config.Settings
	proxy    *proxy.Proxy   // nil if bpool launches no browser for it
	addr     string         // of the proxy
	sessions *sessionServer // serves its leases' sessions; nil if it does not share a browser
	wakeup   chan struct{}

	listener        net.Listener
	profileReleased []<-chan struct{} // closed when former users of its profile have ended
	gone            chan struct{}     // closed when the instance and its browser have ended
	ctx             context.Context   // ends with the instance
	stop            context.CancelFunc

	watching        watching
	group           *group          // whose browser it shares; nil if none
	lastPagesClosed <-chan struct{} // closed when the previous lease's pages are closed; may be nil

	// Used by run:
	retry
	hadBrowser bool // a browser has run before, so the next one counts as a restart

	// Protected by the service's lock:
	pool          *pool // of the current configuration
	state         string
	lease         *lease
	keptFor       string // the KeepConnectionsFor of the last lease, whose clients may be connected
	uses          int    // leases of this browser
	restarts      int
	launchedAt    time.Time // of the current browser
	retryAt       time.Time // when a failed browser is launched again
	demandRetryAt time.Time // the same while a request waits
	replace       bool      // replace the browser before the next lease
	forceReplace  bool      // replace it even if it is leased
	retired       bool      // it ends with its lease
	check         check
}

// check is the result of the latest health check.
type check struct {
	at         time.Time
	responsive bool
	err        string
}

// startLocked starts the instance. It marks up as done when the first browser
// is ready or has failed.
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

// close releases an instance that was never started.
func (s *slot) close() {
	s.stop()
	close(s.gone)
	if s.listener != nil {
		s.listener.Close()
	}
}

// retireLocked ends the instance, after its lease if it has one.
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

// wake makes the slot check its state again.
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

// setLocked sets the state, and puts the slot into the queue if it can be
// leased.
func (s *slot) setLocked(state string) {
	changed := s.state != state
	if changed {
		s.service.eventLocked(state, s, "", s.check.err)
	}
	s.state = state
	s.syncQueueLocked()
	if changed && !s.retired {
		s.service.yieldLocked(s.pool)
	}
}

// syncQueueLocked keeps the slot in the queue exactly while it can be leased.
func (s *slot) syncQueueLocked() {
	if s.retired {
		return // the slot in the queue is another instance's by now
	}
	if s.state == Healthy && s.lease == nil && !s.replace && !s.pool.drained && !s.service.closing {
		s.pool.queue.Put(s.number)
	} else {
		s.pool.queue.Remove(s.number)
	}
}

// run keeps a browser running behind the endpoint until the context ends. It
// calls started when the first browser is ready, has failed, or waits for the
// first connection.
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
			s.notifyHolderLocked("%s; the next connection launches another one", idleText(s.set))
			s.service.mu.Unlock()
		}
		// One that waited for a connection has shown that it must be retried.
		launch = why == crashed || s.set.Start == "eager" && why != idled
	}
}

// runBrowser runs one browser and returns why it ended. It launches it, or
// waits for the first connection to do so.
func (s *slot) runBrowser(ctx context.Context, launch bool, started func()) reason {
	v := s.service
	v.mu.Lock()
	fresh := s.replace // the holder's connection may have launched one meanwhile
	s.replace, s.forceReplace = false, false
	if launch {
		s.setLocked(s.startState())
	}
	if s.set.Extension {
		s.check = check{} // of the last one
	}
	v.mu.Unlock()
	if s.set.Extension {
		started() // nobody knows when a browser joins
	}
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

// recordFailure records that the browser ended or could not be launched, and
// when to retry.
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
		if s.forceReplace || s.replace && at != never { // the end of a lease does not override RESTART=never
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

// Reasons why a browser has ended.
type reason int

const (
	crashed  reason = iota // it exited or did not answer
	replaced               // another browser is to replace it
	idled                  // it was unused; the next connection launches another one
)

// idleText says that a browser was stopped because it was idle.
func idleText(set config.Settings) string {
	without := "traffic"
	if set.IdleBy == config.Connections {
		without = "a WebSocket"
	}
	return fmt.Sprintf("was stopped after %v without %s", set.Idle, without)
}

// endedPrefix begins the error for a browser that exited.
const endedPrefix = "the browser ended: "

// watch watches a browser until it has ended. running says whether it runs
// already.
func (s *slot) watch(ctx context.Context, running bool) reason {
	v := s.service
	s.hadBrowser = s.hadBrowser || running
	interval := time.NewTicker(s.set.HealthInterval)
	defer interval.Stop()
	var asking *checking
	defer func() { asking.stop() }()
	for {
		st, _ := s.proxy.Status()
		switch {
		case st.State == proxy.Ready:
			running, s.hadBrowser = true, true
		case st.State == proxy.Launching || st.State == proxy.Stopping:
		case !running && st.LastError == "": // it waits for the first connection
		case running && st.Exit == proxy.Unused:
			return idled
		case running && (st.Exit == proxy.ToldToStop || st.Exit == proxy.SessionLeft):
			v.mu.Lock()
			s.notifyHolderLocked("was stopped (%s); a new browser replaces it; its pages are lost", st.LastExit)
			v.mu.Unlock()
			return replaced // not by this function
		case running && s.set.Extension && st.LastError == "":
			s.endLeaseOfJoined(st.LastExit)
			return replaced // by the next one that joins
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
			s.notifyHolderLocked("is replaced by bpool restart; its pages are lost")
			s.setLocked(s.startState()) // stopping takes time
			v.mu.Unlock()
			s.proxy.Stop(ctx)
			return replaced
		}
		select {
		case <-ctx.Done():
			return crashed
		case <-s.wakeup:
		case <-interval.C:
			if asking == nil {
				asking = startCheck(ctx, func(ctx context.Context) error {
					return liveness.Check(ctx, s.set.HealthTimeout, liveness.Load, s.ping)
				})
			}
		case err := <-asking.done():
			asking.stop()
			asking = nil
			if errors.Is(err, liveness.ErrNotChecked) {
				v.Log.Warn(err.Error(), "pool", s.poolName, "instance", s.set.ID)
				err = nil // the check failed, not the browser
			}
			if err != nil && s.set.Extension && s.leaves(ctx) {
				continue
			}
			if err != nil && ctx.Err() == nil {
				v.Log.Warn("the browser does not answer: stopping it", "pool", s.poolName, "instance", s.set.ID,
					"why", err)
				s.recordFailure(err, true)
				s.proxy.Stop(ctx)
				if s.set.Extension {
					s.endLeaseOfJoined(err.Error())
				}
				return crashed
			}
			heavy := s.memoryExcess()
			v.mu.Lock()
			s.check = check{at: time.Now(), responsive: true}
			replace := heavy != "" && s.uses > 0 && !s.replace // replacing an unused browser would free nothing
			if replace {
				s.replace = true
				s.syncQueueLocked()
			}
			v.mu.Unlock()
			if replace {
				v.Log.Info("replacing the browser, which "+heavy, "pool", s.poolName, "instance", s.set.ID)
				s.wake()
			}
		}
	}
}

// memoryExcess describes by how much the browser exceeds MAX_MEMORY, or returns
// "".
func (s *slot) memoryExcess() string {
	if _, rec := s.proxy.Status(); rec != nil && s.set.MaxMemory > 0 {
		if i, err := launcher.Endpoint(rec); err == nil {
			return memoryExcess(s.set, i.PID)
		}
	}
	return ""
}

// ping asks the browser for an answer.
func (s *slot) ping(ctx context.Context, within time.Duration) error {
	_, rec := s.proxy.Status()
	if rec == nil {
		return nil // between two browsers: watch notices the end of the last one
	}
	i, err := launcher.Endpoint(rec)
	if err != nil {
		return err
	}
	return proxy.Ping(ctx, i, within)
}

// hasBrowser reports whether there is a browser, or one is starting or
// stopping.
func (s *slot) hasBrowser() bool {
	if s.proxy == nil {
		return false
	}
	st, _ := s.proxy.Status()
	return st.State != proxy.Stopped
}

// browser returns the record of the running browser, or nil.
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

// record returns the instance as the holder of the lease sees it, at the
// permanent endpoint.
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
		// Other leases use the browser and its profile, too.
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
