package pool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"btools/lib/control/api"
	"btools/lib/spell"
)

// WhyNoLease explains why the pool cannot grant a lease now, or, if instance is
// not empty, why that instance cannot be leased: who holds the instances, which
// have failed, and why. It returns "" if there is nothing to report.
func WhyNoLease(p *api.PoolStatus, instance string, now time.Time) string {
	var leased, failed []api.InstanceStatus
	total, starting, awaiting, draining := 0, 0, 0, 0
	for _, i := range p.Instances {
		if instance != "" && i.ID != instance && (i.Alias == nil || *i.Alias != instance) {
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
