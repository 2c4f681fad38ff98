package pool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"btools/lib/control/api"
	"btools/lib/record"
	"btools/lib/spell"
)

// Status returns the state of the named pool, or of all pools if the name is
// "".
func (v *Service) Status(name string) (*api.PoolsStatus, error) {
	v.mu.Lock()
	shown, err := v.pools.these(name)
	if err != nil {
		v.mu.Unlock()
		return nil, err
	}
	st, slots := shown.status()
	v.mu.Unlock()
	for i, s := range slots {
		s.addBrowserDetails(i)
	}
	return st, nil
}

// status returns the status without what the proxies know, because they
// are called without the lock, and the slot of each instance in it.
func (ps pools) status() (*api.PoolsStatus, map[*api.InstanceStatus]*slot) {
	all := map[*api.InstanceStatus]*slot{}
	st := &api.PoolsStatus{Pools: []api.PoolStatus{}, Summary: api.PoolsSummary{Pools: len(ps)}}
	for _, p := range ps {
		one, slots := p.status()
		st.Pools = append(st.Pools, one)
		st.Summary.Total += one.Total
		st.Summary.Healthy += one.Healthy
		st.Summary.Leased += one.Leased
		st.Summary.Available += one.Available
		st.Summary.Waiting += one.Waiting
		for k := range one.Instances {
			i := &one.Instances[k]
			all[i] = slots[k]
			if i.Status == Failed {
				st.Summary.Failed++
			}
		}
	}
	slices.SortFunc(st.Pools, func(a, b api.PoolStatus) int { return cmp.Compare(a.Name, b.Name) })
	return st, all
}

// status returns the pool's status and the slots of its instances.
func (p *pool) status() (api.PoolStatus, []*slot) {
	ps := api.PoolStatus{Name: p.cfg.Name, Description: p.cfg.Description, IsDefault: p.cfg.IsDefault,
		Total: len(p.slots), Waiting: p.leases.Waiting(), Affinity: p.cfg.Affinity,
		LeaseTTL: p.cfg.LeaseTTL.Milliseconds(), Interval: p.cfg.HealthInterval.Milliseconds(),
		Timeout: p.cfg.HealthTimeout.Milliseconds(), Instances: []api.InstanceStatus{}}
	slots := slices.Clone(p.slots)
	for _, l := range p.service.leases { // removed instances that end with their lease
		if l.slot.retired && l.slot.poolName == p.cfg.Name {
			slots = append(slots, l.slot)
		}
	}
	for _, s := range slots {
		i := s.status()
		if i.Status == Healthy {
			ps.Healthy++
			if !i.Leased {
				ps.Available++
			}
		}
		if i.Leased {
			ps.Leased++
		}
		ps.Instances = append(ps.Instances, i)
	}
	return ps, slots
}

func (s *slot) status() api.InstanceStatus {
	state, r := s.state, s.runs()
	if state == Healthy && (s.pool.drained || s.retired || s.service.closing) {
		state = Draining
	}
	i := api.InstanceStatus{
		ID: s.set.ID, Status: state, Browser: s.set.Browser, Headless: s.set.IsHeadless(),
		UserDataDir: s.set.Profile, WSLWindows: s.set.WSLWindows,
		Isolated: s.set.Isolated, Isolation: s.set.Isolation, Timeout: s.set.Timeout.Milliseconds(),
		Uses: r.Uses, Restarts: s.restarts, Memory: r.Memory, HibernateAfter: s.set.Hibernate.Milliseconds(),
	}
	if s.set.Alias != "" {
		i.Alias = &s.set.Alias
	}
	if l := s.lease; l != nil {
		ms := time.Since(l.started).Milliseconds()
		i.Leased, i.LeaseDuration, i.LeaseStarted, i.Lease = true, &ms, &record.Time{Time: l.started}, l.id
		i.Holder, i.By, i.User, i.Stays = l.holder, l.by.String(), l.user, l.whyStaysLocked()
		if since := l.held.Resting(); !since.IsZero() {
			i.LeaseIdle = new(s.service.clock.now().Sub(since).Milliseconds())
		}
		if l.ttl < NoExpiry {
			i.LeaseExpires = &record.Time{Time: l.expires}
		}
	}
	if s.state == Failed && !r.Retry.Off {
		i.NextTry = &record.Time{Time: r.Retry.At}
	}
	switch {
	case s.proxy != nil:
		i.Endpoint = "http://" + s.addr
	case s.shares() && s.lease != nil:
		var at record.Instance
		s.setAddresses(&at, s.lease.id)
		i.Endpoint = at.HTTPURL
		s.lease.addSession(&i)
	}
	if !r.Check.At.IsZero() {
		i.Health = api.HealthStatus{LastCheck: &record.Time{Time: r.Check.At}, Responsive: r.Check.Responsive}
		if r.Check.Err != "" {
			i.Health.Error = new(r.Check.Err) // a copy, because the answer is written without the lock
		}
	}
	return i
}

// addBrowserDetails adds what only the record of the running browser tells.
func (s *slot) addBrowserDetails(st *api.InstanceStatus) {
	rec := s.browser()
	if rec == nil {
		return
	}
	var i record.Instance
	if ok, err := rec.Get("instance", &i); ok && err == nil && i.PID != 0 {
		st.ProcessID = &i.PID
	}
	var b record.Browser
	if ok, err := rec.Get("browser", &b); ok && err == nil && st.Browser == "" {
		st.Browser = b.Type
	}
}

// WhyNoLease explains why the pool cannot grant a lease now, or, if instance is
// not empty, why that instance cannot be leased: who holds the instances, which
// have failed, and why. It returns "" if there is nothing to report.
func WhyNoLease(p *api.PoolStatus, instance string, now time.Time) string {
	var leased, failed []api.InstanceStatus
	total, starting, awaiting, draining := 0, 0, 0, 0
	for _, i := range p.Instances {
		if i.Host != "" || instance != "" && i.ID != instance && (i.Alias == nil || *i.Alias != instance) {
			continue
		}
		total++
		switch {
		case i.Leased:
			leased = append(leased, i)
		case i.Status == Failed:
			failed = append(failed, i)
		case i.Status == Starting:
			starting++
		case i.Status == Awaiting:
			awaiting++
		case i.Status == Draining:
			draining++
		}
	}
	var reasons []string
	if n := len(leased); n > 0 {
		reasons = append(reasons, fmt.Sprintf("%d of %d leased, by %s", n, total, holders(leased, now)))
	}
	if starting > 0 {
		reasons = append(reasons, fmt.Sprintf("%d of %d starting", starting, total))
	}
	if awaiting > 0 {
		reasons = append(reasons, fmt.Sprintf("%d of %d waiting for a browser to join by its extension", awaiting,
			total))
	}
	if n := len(failed); n > 0 {
		reasons = append(reasons, fmt.Sprintf("%d of %d failed: %s", n, total, failures(failed, now)))
	}
	if draining > 0 {
		reasons = append(reasons, fmt.Sprintf("%d of %d drained", draining, total))
	}
	return strings.Join(reasons, "; ")
}

// Holders reports the number of leases and who holds them.
func Holders(st *api.PoolsStatus, now time.Time) string {
	var leased []api.InstanceStatus
	for _, p := range st.Pools {
		for _, i := range p.Instances {
			if i.Leased {
				leased = append(leased, i)
			}
		}
	}
	return fmt.Sprintf("%s (%s)", spell.Count(len(leased), "lease"), holders(leased, now))
}

// Stays says how many leases there are, and why they have not moved to other hosts.
func Stays(st *api.PoolsStatus) string {
	var reasons []string
	leases := map[string][]string{} // by reason
	n := 0
	for _, p := range st.Pools {
		for _, i := range p.Instances {
			if !i.Leased {
				continue
			}
			why := cmp.Or(i.Stays, "its pool is not drained")
			if leases[why] == nil {
				reasons = append(reasons, why)
			}
			leases[why] = append(leases[why], p.Name+"/"+i.ID)
			n++
		}
	}
	for k, why := range reasons {
		of := leases[why]
		if more := len(of) - maxListed; more > 0 {
			of = append(of[:maxListed], fmt.Sprintf("%d more", more))
		}
		reasons[k] = strings.Join(of, ", ") + ": " + why
	}
	return fmt.Sprintf("%s (%s)", spell.Count(n, "lease"), strings.Join(reasons, "; "))
}

// HolderOf returns the name of a lease's holder, with the user to whom the lease belongs
// unless that runs the service; "": it is not known.
func HolderOf(i api.InstanceStatus) string {
	switch {
	case i.User == "":
		return i.Holder
	case i.Holder == "":
		return i.User
	}
	return i.Holder + " of " + i.User
}

// maxListed is the number of holders and of reasons that are listed.
const maxListed = 3

// holders lists the holders of leases, the oldest lease first.
func holders(leased []api.InstanceStatus, now time.Time) string {
	slices.SortStableFunc(leased, func(a, b api.InstanceStatus) int {
		return a.LeaseStarted.Compare(b.LeaseStarted.Time)
	})
	var names []string
	for _, i := range leased[:min(maxListed, len(leased))] {
		name := cmp.Or(HolderOf(i), i.By, "an unnamed holder") + " for " +
			now.Sub(i.LeaseStarted.Time).Round(time.Second).String()
		if i.LeaseIdle != nil {
			idle := (time.Duration(*i.LeaseIdle) * time.Millisecond).Round(time.Second)
			name += " (kept by AFFINITY=session, idle for " + idle.String() + ")"
		}
		if end := i.LeaseExpires; end != nil {
			layout := time.TimeOnly
			if end.Sub(now) > 12*time.Hour {
				layout = time.DateTime
			}
			name += " until " + end.Local().Format(layout)
		}
		names = append(names, name)
	}
	if n := len(leased) - maxListed; n > 0 {
		names = append(names, fmt.Sprintf("%d more", n))
	}
	return strings.Join(names, ", ")
}

// failures lists why instances have failed, each reason once, and when the next
// one is retried.
func failures(failed []api.InstanceStatus, now time.Time) string {
	var reasons []string
	var next *time.Time
	for _, i := range failed {
		if i.Health.Error != nil {
			if r := FirstSentence(*i.Health.Error); !slices.Contains(reasons, r) {
				reasons = append(reasons, r)
			}
		}
		if i.NextTry != nil && (next == nil || i.NextTry.Before(*next)) {
			next = &i.NextTry.Time
		}
	}
	if n := len(reasons) - maxListed; n > 0 {
		reasons = append(reasons[:maxListed], spell.Count(n, "more reason"))
	}
	when := "not retried (RESTART=never)"
	if next != nil {
		when = NextTry(*next, now)
	}
	return strings.Join(append(reasons, when), ", ")
}

// FirstSentence shortens the error of an instance to its first sentence,
// without the output of the browser that follows and without words that add
// nothing.
func FirstSentence(reason string) string {
	if i := strings.IndexAny(reason, ";\n"); i >= 0 {
		reason = reason[:i]
	}
	reason = strings.TrimPrefix(strings.TrimPrefix(reason, "blaunch: "), "cannot launch: ")
	if _, why, ok := strings.Cut(reason, " before its endpoint answered: "); ok {
		return why
	}
	return reason
}

// NextTry says when an instance is retried, for example "next try in 8s".
func NextTry(at, now time.Time) string {
	if left := at.Sub(now).Round(time.Second); left > 0 {
		return "next try in " + left.String()
	}
	return "next try in a moment"
}
