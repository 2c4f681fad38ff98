package pool

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"btools/lib/control/api"
	"btools/lib/find"
	"btools/lib/fleet"
	"btools/lib/fleet/supply"
	"btools/lib/forward/limits"
	"btools/lib/front"
	"btools/lib/launch/options"
	"btools/lib/proxy"
	"btools/lib/record"
	"btools/lib/settings"
	"btools/lib/sibling"
)

// States of an instance.
const (
	Starting = "starting"
	Awaiting = "waiting" // for a browser to join by its extension
	Healthy  = "healthy"
	Failed   = "failed"
	Draining = "draining"
)

// slot is one instance of a pool. Its endpoint stays the same while browsers
// come and go behind it.
type slot struct {
	runner // runner of a browser of its own
	number int
	proxy  *proxy.Proxy // endpoint of its own browser; nil: it has none
	addr   string       // address of the proxy or of the sessions of its leases; "": it has no browser

	listener        net.Listener
	profileReleased []<-chan struct{} // closed when former users of its profile have ended
	gone            chan struct{}     // closed when the instance and its browser have ended

	watching        watching
	group           *group          // instances with which it shares a browser; nil: none
	lastPagesClosed <-chan struct{} // closed when the previous lease's pages are closed; may be nil

	// Protected by the service's lock:
	pool     *pool // pool in the current configuration
	lease    *lease
	offer    *offer
	uid      int    // user of the endpoint, besides root and the user who runs the service
	keptFor  string // the KeepConnectionsFor of the last lease, whose clients may be connected
	restarts int
	retired  bool // whether it ends with its lease
}

// newSlot creates an instance and opens its endpoint.
func (p *pool) newSlot(n int, set settings.Settings) (*slot, error) {
	v := p.service
	s := &slot{runner: v.newRunner(p.cfg.Name, set), gone: make(chan struct{}), pool: p, number: n}
	s.log = s.log.With("instance", set.ID)
	if !set.Launch {
		return s, nil
	}
	if set.Isolation == settings.Context {
		var err error
		s.addr, err = p.sessionsAddrLocked()
		return s, err
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cannot open the endpoint of %s/%s: %w", p.cfg.Name, set.ID, err)
	}
	s.listener, s.addr = l, l.Addr().String()
	s.watching = newWatching(v.Dir, set)
	s.proxy = &proxy.Proxy{
		Runner: supply.Runner{Options: launchOptions(set), Spec: supply.Configured(set),
			Launch: func(ctx context.Context, o options.Options, _ string) (*sibling.Browser, error) {
				b, err := v.Launch(ctx, p.cfg.Name, set, o, s.held.member)
				v.metrics.launches.WithLabelValues(p.cfg.Name).Inc()
				if err != nil {
					v.metrics.failures.WithLabelValues(p.cfg.Name).Inc()
				} else {
					s.watchDownloads(ctx, b)
				}
				return b, err
			}},
		Unconnected: s.resetDownloads, Held: func() bool { return len(s.held.all()) > 0 }, Changed: s.Wake,
		State: v.State,
		Front: front.Front{Limit: front.Limit{Max: maxRequests},
			Routes: []front.Route{{Path: front.DownloadsPath, Answer: s.answerDownloads}}},
		Log: s.log,
	}
	if !set.WSLWindows {
		s.proxy.Front.Guard.User = s.endpointUser
	}
	s.Runner = &s.proxy.Runner
	s.Runner.Spec.Health.Checked = s.checked
	s.proxy.Start()
	return s, nil
}

// launchOptions converts an instance's settings to blaunch's options.
func launchOptions(set settings.Settings) options.Options {
	set.Browser = record.Canonical(set.Browser)
	if set.Limits().Any() {
		set.Args = append(slices.Clone(set.Args), limits.ChromeArgs...)
	}
	return set.Options
}

// runs returns the runner of the instance's browser: its own, or its group's.
func (s *slot) runs() *runner {
	if s.group != nil {
		return &s.group.runner
	}
	return &s.runner
}

// shares reports whether the instance's leases have sessions of a browser that it shares.
func (s *slot) shares() bool { return s.proxy == nil && s.addr != "" }

// startLocked starts the instance. It marks up as done when the first browser
// is ready or has failed.
func (s *slot) startLocked(up *sync.WaitGroup) {
	if s.shares() {
		s.joinLocked(up)
		return
	}
	if s.proxy == nil {
		s.Check = supply.Checked{At: time.Now(), Responsive: true}
		s.setLocked(Healthy)
		return
	}
	v := s.service
	up.Add(1)
	s.Owner, s.Started = s, sync.OnceFunc(up.Done)
	if s.set.Extension {
		s.Left = s.endLeaseOfJoined
	}
	v.running.Go(func() {
		s.proxy.Serve(s.ctx, s.listener)
		v.mu.Lock()
		v.retired = slices.DeleteFunc(v.retired, func(old *slot) bool { return old == s })
		v.mu.Unlock()
		close(s.gone)
	})
	v.running.Go(func() {
		defer s.Started()
		for _, before := range s.profileReleased {
			s.Started()
			select {
			case <-before:
			case <-s.ctx.Done():
			}
		}
		s.Run(s.ctx)
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
	s.pool.leases.Remove(s.number)
	s.pool.leases.Retire(s.number)
	if s.proxy != nil {
		s.service.retired = append(s.service.retired, s)
	}
	if s.group != nil {
		s.group.removeLocked(s)
	}
	if s.lease == nil && s.offer == nil {
		s.stop()
	}
}

// setLocked sets the state, and puts the slot into the queue if it can be
// leased.
func (s *slot) setLocked(state string) {
	changed := s.state != state
	if changed {
		s.service.events.ofInstance(state, s, s.runs().Check.Err)
	}
	s.state = state
	s.syncQueueLocked()
	if changed && !s.retired {
		s.pool.yieldLocked()
	}
}

// syncQueueLocked keeps the slot in the queue exactly while it can be leased.
func (s *slot) syncQueueLocked() {
	if s.retired {
		return // the slot in the queue is another instance's by now
	}
	if s.state == Healthy && s.lease == nil && s.offer == nil && s.Replace == supply.None && !s.ForceReplace &&
		!s.pool.drained && !s.service.closing {
		s.pool.leases.Put(s.number)
	} else {
		s.pool.leases.Remove(s.number)
	}
}

// StartingLocked notes that a browser is about to be launched.
func (s *slot) StartingLocked() { s.setLocked(s.startState()) }

// BegunLocked notes that there is a browser, or that the first connection launches one.
func (s *slot) BegunLocked(now bool) {
	uses := 0
	if s.lease != nil {
		uses = 1
	}
	if s.LaunchedLocked(now, uses) {
		s.restartedLocked(s.Cause, s)
	}
	s.Check = supply.Checked{At: time.Now(), Responsive: true}
	s.setLocked(Healthy)
}

// FailedLocked tells the holder of the instance, whose browser has failed.
func (s *slot) FailedLocked(what, next string) {
	s.notifyHolderLocked("%s; %s", what+briefReason(s.Check.Err), next)
	s.setLocked(Failed)
	s.failWaitersLocked()
}

// EndedLocked tells the holder why a browser has ended that has not failed.
func (s *slot) EndedLocked(why error) supply.Cause {
	if why == supply.Unused {
		s.notifyHolderLocked("%s; the next connection launches another one", idleText(s.set))
		return ""
	}
	s.notifyHolderLocked("was stopped (%s); a new browser replaces it; its pages are lost", why)
	if why == supply.SessionLeft {
		return supply.Hang
	}
	return supply.Asked
}

// ReviewLocked returns what to do with the browser.
func (s *slot) ReviewLocked(string) (act func(), over bool) {
	s.syncQueueLocked() // nobody leases a browser that is to be replaced
	if !s.ForceReplace && (s.Replace == supply.None || s.lease != nil) {
		return nil, false
	}
	s.notifyHolderLocked("is replaced by bpool restart; its pages are lost")
	s.setLocked(s.startState()) // stopping takes time
	return func() { s.Runner.Stop(s.ctx, false) }, true
}

// checked notes that the browser has passed a health check.
func (s *slot) checked(c *supply.Chrome) {
	if heavy := s.Passed(c); heavy != supply.None {
		s.log.Info("the browser " + heavy.Text + ": it is replaced when no lease has it")
		s.Wake()
	}
}

// endpointUser returns the user whose programs may use the endpoint of the instance: that of
// its lease, or of the last one if that keeps its connections.
func (s *slot) endpointUser() int {
	s.service.mu.Lock()
	defer s.service.mu.Unlock()
	return s.uid
}

// hasBrowser reports whether there is a browser, or one is starting or
// stopping.
func (s *slot) hasBrowser() bool {
	return s.Runner != nil && s.Runner.Status().State != supply.Stopped
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
	if s.addr == "" {
		return out
	}
	i := record.Instance{Host: s.addr, Headless: s.set.IsHeadless(), Temporary: s.set.Profile == ""}
	if rec := s.browser(); rec != nil {
		if raw := rec.Raw("browser"); raw != nil {
			out.SetRaw("browser", raw)
		}
		rec.Get("instance", &i)
	}
	if s.shares() {
		// Other leases use the browser and its profile, too.
		i.ID, i.SupervisorPID, i.UserDataDir, i.Protocol = "", 0, "", record.CDP
	} else if i.Protocol == "" {
		i.Protocol = protocol(s.set.Browser)
	}
	s.setAddresses(&i, lease)
	out.MustSet("instance", i)
	return out
}

// The browser of an instance with LAUNCH=extension is one that a person uses and
// that joins by its extension: "bproxy join" takes the place of blaunch. A lease
// has that browser, and not another person's after it: it ends when the browser
// leaves.

// left is the event of a lease that ends because its browser has left.
const left = "left"

// startState returns the state of an instance whose browser is not there yet.
func (r *runner) startState() string {
	if r.set.Extension {
		return Awaiting
	}
	return Starting
}

// endLeaseOfJoined ends the instance's lease after its browser has left.
func (s *slot) endLeaseOfJoined(why string) {
	v := s.service
	why = strings.TrimPrefix(why, "the browser has left: ")
	v.mu.Lock()
	if s.state == Healthy {
		s.setLocked(Awaiting)
	}
	s.notifyHolderLocked("has left: %s", why)
	l := s.lease
	v.mu.Unlock()
	if l != nil {
		l.end(left, why, false)
	}
}

// AllAwait reports whether all instances of the pool wait for a browser to join.
func AllAwait(p *api.PoolStatus) bool {
	return !slices.ContainsFunc(p.Instances, func(i api.InstanceStatus) bool { return i.Status != Awaiting })
}

// protocol returns the protocol of the browser that BROWSER selects.
func protocol(browser string) string {
	var b record.Browser
	switch {
	case filepath.IsAbs(browser):
		b, _ = find.Inspect(browser, "")
	case browser == "":
		home, _ := os.UserHomeDir()
		o := find.Options{Getenv: os.Getenv, Home: home}
		if best, _, err := find.Browsers(context.Background(), o); err == nil &&
			len(best) > 0 {
			b = best[0]
		}
	default:
		b.Type = record.Canonical(browser)
	}
	if b.Type == record.Firefox {
		return record.BiDi
	}
	return record.CDP
}

// setAddresses sets the addresses of the instance's permanent endpoint, or of the session
// of a lease there.
func (s *slot) setAddresses(i *record.Instance, lease string) {
	host, port, _ := net.SplitHostPort(s.addr)
	i.Host = host
	i.Port, _ = strconv.Atoi(port)
	path, socket := "", "/devtools/browser"
	switch {
	case s.shares():
		path, socket = fleet.Prefix+lease, "/devtools/browser/"+lease
	case i.Protocol == record.BiDi:
		socket = "/session"
	}
	i.HTTPURL, i.WSURL = "http://"+s.addr+path, "ws://"+s.addr+path+socket
}
