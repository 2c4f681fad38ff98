package guard

import (
	"net/http"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/proc"
	"btools/lib/sockets"
	"btools/lib/state"
)

// Browsers are the browsers in a state file. A page in one of them must not reach a
// port of ours, whatever its requests say: it would drive the sessions of others.
//
// What a page opens, a browser's network service opens for it. Looking into that one
// process takes a tenth of the time that its whole tree takes.
type Browsers struct {
	state *state.Store

	mu       sync.Mutex
	services map[proc.Identity]service // by browser
}

// service is the process that opens the connections of a browser.
type service struct {
	process proc.Identity
	sure    bool      // it is a network service, and not only the browser itself
	found   time.Time // when
}

// lookAgain is how long a browser counts as one without a network service.
const lookAgain = time.Second

// NewBrowsers returns the browsers of a state file.
func NewBrowsers(s *state.Store) *Browsers {
	return &Browsers{state: s, services: map[proc.Identity]service{}}
}

// opened reports whether one of the browsers has opened a connection.
func (b *Browsers) opened(socket sockets.Socket) bool {
	if b.state == nil {
		return false
	}
	f, err := b.state.Read()
	if err != nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	listed := map[proc.Identity]bool{}
	for _, i := range f.Instances {
		if i.Browser == nil || !i.Browser.Local() {
			continue
		}
		listed[*i.Browser] = true
		if holds, _ := socket.HeldBy(b.serviceLocked(*i.Browser).PID); holds {
			return true
		}
	}
	for id := range b.services {
		if !listed[id] {
			delete(b.services, id)
		}
	}
	return false
}

// serviceLocked returns the process that opens the connections of a browser.
func (b *Browsers) serviceLocked(browser proc.Identity) proc.Identity {
	s, known := b.services[browser]
	if known && s.process.Alive() && (s.sure || time.Since(s.found) < lookAgain) {
		return s.process
	}
	s = service{process: browser, found: time.Now()}
	if pid := networkService(browser.PID); pid != 0 {
		if id, err := proc.Of(pid); err == nil {
			s.process, s.sure = id, true
		}
	}
	b.services[browser] = s
	return s.process
}

// check returns a refusal for a request of a browser.
func (b *Browsers) check(r *http.Request) *Refusal {
	p := peerOf(r)
	if b == nil || p == nil {
		return nil
	}
	p.once.Do(func() {
		if s, err := p.socket(); err == nil {
			p.browser = b.opened(s)
		}
	})
	if !p.browser {
		return nil
	}
	return &Refusal{http.StatusForbidden, control.Errorf(Forbidden, "requests from a browser of blaunch are refused")}
}
