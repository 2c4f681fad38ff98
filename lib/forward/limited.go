package forward

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"syscall"
	"time"

	"btools/lib/forward/limits"
)

// A forwarder can also keep the pages of its browser to the servers that Options.Limits
// allow. Each request is judged by the host and the port that Chrome asks for, and again by
// the address to which the connection is made: what a name resolves to at that moment. With
// another proxy, which resolves names itself, a name is judged by what it is here.

// maxFailures bounds the servers whose latest failure is remembered.
const maxFailures = 100

// failures are the latest requests that have failed, of a forwarder with limits.
type failures struct {
	mu       sync.Mutex
	refused  int // requests that a rule forbade
	last     failure
	byServer map[string]failure
}

// failure is why a request has failed, in the form of Chrome's errors.
type failure struct {
	at   time.Time
	text string
}

// serverOf returns what a request asks for. The scheme of a tunnel is "".
func serverOf(r *http.Request) (scheme, host string, port int, err error) {
	target, text := r.RequestURI, ""
	if scheme = ""; r.Method != http.MethodConnect {
		scheme, target = r.URL.Scheme, net.JoinHostPort(r.URL.Hostname(), cmp.Or(r.URL.Port(), "80"))
	}
	if host, text, err = net.SplitHostPort(target); err == nil {
		port, err = strconv.Atoi(text)
	}
	return scheme, host, port, err
}

// checkLimits returns an error if a rule forbids a request.
func (f *Forwarder) checkLimits(r *http.Request) error {
	if !f.Limits.Any() {
		return nil
	}
	scheme, host, port, err := serverOf(r)
	if err == nil {
		err = f.Limits.Server(scheme, host, port)
	}
	if err == nil && f.Limits.Private && !f.isDirect(net.JoinHostPort(host, strconv.Itoa(port))) {
		err = f.checkName(r.Context(), host)
	}
	f.noteFailed(r, err)
	return err
}

// checkName returns an error if a name leads to an address here that no page may reach.
func (f *Forwarder) checkName(ctx context.Context, host string) error {
	if isLocalhost(host) {
		return f.Limits.Address(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	}
	ctx, cancel := context.WithTimeout(ctx, f.bound())
	defer cancel()
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil // the other proxy may know it
	}
	for _, ip := range all {
		if err := f.Limits.Address(ip); err != nil {
			return err
		}
	}
	return nil
}

// checkAddress returns an error if no page may reach the address to which a connection is
// about to be made.
func (f *Forwarder) checkAddress(_ context.Context, _, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if err := f.Limits.Address(at.Addr()); err != nil || !f.Limits.Private {
		return err
	}
	own, err := net.InterfaceAddrs() // a public address may be this machine's, too
	for _, a := range own {
		if network, is := a.(*net.IPNet); is && network.IP.Equal(at.Addr().AsSlice()) {
			return &limits.Refusal{Rule: "--block-private", Why: at.Addr().String() + " is this machine"}
		}
	}
	return err
}

// noteFailed notes why a request has failed; nil: it has not.
func (f *Forwarder) noteFailed(r *http.Request, err error) {
	if err == nil || !f.Limits.Any() {
		return
	}
	now := failure{time.Now(), codeOf(err)}
	_, host, port, _ := serverOf(r)
	n := &f.failures
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, is := errors.AsType[*limits.Refusal](err); is {
		n.refused++
		n.last = now
	}
	if n.byServer == nil || len(n.byServer) >= maxFailures {
		n.byServer = map[string]failure{}
	}
	n.byServer[net.JoinHostPort(host, strconv.Itoa(port))] = now
}

// codeOf returns an error as Chrome has it for a request without a proxy, and the rule.
func codeOf(err error) string {
	var name *net.DNSError
	if r, is := errors.AsType[*limits.Refusal](err); is {
		return "net::ERR_BLOCKED_BY_ADMINISTRATOR: " + r.Error()
	}
	switch {
	case errors.As(err, &name):
		return "net::ERR_NAME_NOT_RESOLVED"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "net::ERR_CONNECTION_REFUSED"
	case isTimeout(err):
		return "net::ERR_CONNECTION_TIMED_OUT"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "net::ERR_ADDRESS_UNREACHABLE"
	}
	return "net::ERR_CONNECTION_FAILED"
}

// WhyFailed returns why a page that was to be loaded since then has failed, in the form of
// Chrome's errors: for its address, or for another one to which it has led. It returns "" if
// the forwarder does not know.
func (f *Forwarder) WhyFailed(address string, since time.Time) string {
	if why := f.WhyServerFailed(address, since); why != "" {
		return why
	}
	n := &f.failures
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.last.at.Before(since) {
		return ""
	}
	return n.last.text
}

// WhyServerFailed is WhyFailed for the server of an address alone.
func (f *Forwarder) WhyServerFailed(address string, since time.Time) string {
	n := &f.failures
	n.mu.Lock()
	defer n.mu.Unlock()
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "ws": "80", "https": "443", "wss": "443"}[u.Scheme])
	if own, known := n.byServer[net.JoinHostPort(u.Hostname(), port)]; known && !own.at.Before(since) {
		return own.text
	}
	return ""
}

// Refused returns how many requests the rules forbade, and why the last one was.
func (f *Forwarder) Refused() (n int, last string) {
	f.failures.mu.Lock()
	defer f.failures.mu.Unlock()
	return f.failures.refused, f.failures.last.text
}
