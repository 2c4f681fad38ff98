package virtual

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"btools/lib/forward"
	"btools/lib/forward/limits"
	"btools/lib/forward/upstream"
	"btools/lib/jsonrpc"
	"btools/lib/sockets"
)

// sessionProxy is the forwarder through which the pages of a session go. It stays as the session begins with it.
type sessionProxy struct {
	s    *Session
	to   *forward.Forwarder // to the proxy of the options, and past kept; nil without either
	kept netip.AddrPort     // the browser's own port, from which the pages are kept; zero: none
}

// open starts the forwarder of the session, which ends with it: to its proxy, or to servers themselves if the browser
// has a debugging port, which no page may reach, or if there are rules about what pages may reach.
func (p *sessionProxy) open(ctx context.Context) (err error) {
	b := p.s.browser
	rules := p.s.options.Limits()
	if p.s.options.DefaultContext {
		if rules.Any() {
			return errors.New("the browser's default context is its user's, whose pages have no limits: " +
				"another session can have them")
		}
		if p.s.options.Proxy != "" {
			return errors.New("the browser's default context has the proxy that the browser was launched with: " +
				"the session cannot have its own")
		}
		return nil // its user may open what it likes
	}
	if rules.Any() {
		if err := p.checkLimits(ctx); err != nil {
			return err
		}
	}
	var proxy *upstream.URL
	if p.s.options.Proxy != "" {
		if proxy, err = upstream.Parse(p.s.options.Proxy); err != nil {
			return err
		}
	}
	p.kept = b.ownPort(ctx)
	if proxy == nil && !p.kept.IsValid() && !rules.Any() {
		return nil
	}
	p.to, err = forward.Listen(forward.Options{Upstream: proxy, Except: p.kept, Limits: rules,
		Loopback: strings.Contains(p.s.options.ProxyBypass, loopbackToo), Browser: b.process, Log: b.log})
	return err
}

// checkLimits returns an error if pages could go round the limits of the session.
func (p *sessionProxy) checkLimits(ctx context.Context) error {
	if p.s.options.ProxyBypass != "" {
		return errors.New("proxy_bypass cannot be used with allow_origins, block_origins and block_private: " +
			"they judge all requests")
	}
	if runtime.GOOS != "linux" {
		return nil // the arguments of the browser are not known
	}
	pid, err := p.s.browser.process(ctx)
	if err != nil {
		return err
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	for _, arg := range limits.ChromeArgs {
		if !slices.Contains(strings.Split(string(line), "\x00"), arg) {
			err = fmt.Errorf("the pages of this browser could go round the limits by WebRTC: launch it with %s, as "+
				"bproxy share does if it has limits itself", strings.Join(limits.ChromeArgs, " "))
		}
	}
	return err
}

func (p *sessionProxy) close() {
	if p.to != nil {
		p.to.Close()
	}
}

// errOwnProxy refuses a context whose requests nobody would keep from the port.
var errOwnProxy = errors.New("a context of this browser cannot have a proxy of its own: by it, a page could reach " +
	"the browser's debugging port; the session can have one")

// errProxyOfLimited refuses a context whose requests nobody would judge.
var errProxyOfLimited = errors.New("a context of this session cannot have a proxy of its own: the session limits " +
	"what its pages may reach; the session can have one")

// contextParams returns the parameters of Target.createBrowserContext: those of
// a client, with the session's proxy unless they name another.
func (p *sessionProxy) contextParams(params json.RawMessage) (json.RawMessage, error) {
	params = jsonrpc.Set(params, "disposeOnDetach", json.RawMessage("true"))
	switch own := jsonrpc.GetString(params, "proxyServer"); {
	case own != "" && p.kept.IsValid():
		return nil, errOwnProxy
	case own != "" && p.s.options.isLimited():
		return nil, errProxyOfLimited
	case p.to == nil || own != "":
		return params, nil
	}
	params = jsonrpc.Set(params, "proxyServer", quote(p.to.URL()))
	bypass := jsonrpc.GetString(params, "proxyBypassList")
	if jsonrpc.Get(params, "proxyBypassList") == nil {
		bypass = p.s.options.ProxyBypass
	}
	switch {
	case p.s.options.isLimited():
		bypass = loopbackToo
	case p.kept.IsValid():
		bypass = p.keepFrom(bypass)
	}
	if bypass != "" {
		params = jsonrpc.Set(params, "proxyBypassList", quote(bypass))
	}
	return params, nil
}

// loopbackToo in a bypass list sends loopback through the proxy.
const loopbackToo = "<-loopback>"

// keepFrom returns a list of what goes past the forwarder such that nothing can go to the browser's own port. Without
// another proxy, that is all other machines' at the usual ports: the list knows no other word for "not this port".
func (p *sessionProxy) keepFrom(bypass string) string {
	rules := []string{}
	if p.s.options.Proxy != "" {
		rules = strings.FieldsFunc(bypass, func(r rune) bool { return strings.ContainsRune(";, \t\n", r) })
	} else {
		for _, port := range []uint16{80, 443} {
			if port != p.kept.Port() {
				rules = append(rules, fmt.Sprint("*:", port))
			}
		}
	}
	return strings.Join(append(rules, loopbackToo), ";") // the last rule that fits decides
}

// ownPort returns the browser's debugging port if the browser runs on this machine,
// so that it can reach a forwarder of ours.
func (b *Browser) ownPort(ctx context.Context) (own netip.AddrPort) {
	refused := b.own.Load()
	if refused == nil {
		return own
	}
	b.here.Do(func() { b.isHere = b.listensHere(ctx, *refused) })
	if b.isHere {
		own = *refused
	}
	return own
}

// KeepsPagesFromPort reports whether the pages of sessions, but for those of the browser's
// own profile, cannot reach its debugging port.
func (b *Browser) KeepsPagesFromPort(ctx context.Context) bool { return b.ownPort(ctx).IsValid() }

// acceptTime is how long a browser may take to accept a connection.
const acceptTime = 2 * time.Second

// listensHere reports whether the browser's own process listens at an address, and not what leads to another machine.
func (b *Browser) listensHere(ctx context.Context, at netip.AddrPort) bool {
	pid, err := b.process(ctx)
	if err != nil {
		return false
	}
	c, err := (&net.Dialer{Timeout: acceptTime}).DialContext(ctx, "tcp", at.String())
	if err != nil {
		return false
	}
	defer c.Close()
	for end := time.Now().Add(acceptTime); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		socket, err := sockets.Of(c)
		if errors.Is(err, sockets.ErrUnheld) {
			continue // it is to be accepted
		}
		if err != nil {
			return false
		}
		holds, err := socket.HeldBy(pid)
		if holds || err != nil {
			return holds
		}
	}
	return false
}

// process returns the browser's process.
func (b *Browser) process(ctx context.Context) (int, error) {
	got, err := b.watcher.Call(ctx, "", "SystemInfo.getProcessInfo", nil)
	if err != nil {
		return 0, err
	}
	for p := range jsonrpc.Elements(jsonrpc.Get(got, "processInfo")) {
		var process struct {
			Type string
			ID   int
		}
		if err := json.Unmarshal(p, &process); err == nil && process.Type == "browser" && process.ID > 0 {
			return process.ID, nil
		}
	}
	return 0, fmt.Errorf("the browser does not list its own process")
}

// proxyErrors are Chrome's errors for a request that a forwarder has ended.
var proxyErrors = []string{"net::ERR_EMPTY_RESPONSE", "net::ERR_TUNNEL_CONNECTION_FAILED"}

// whyKnown is for how long the reason for a failed request is told.
const whyKnown = time.Minute

// whyFailed answers Btools.whyFailed: why the latest request to the server of a URL has failed, in the form of Chrome's
// errors; "": it is not known.
func whyFailed(r request) {
	why := ""
	if s := r.k.session; s.options.isLimited() {
		why = s.proxy.to.WhyServerFailed(jsonrpc.GetString(r.Params, "url"), time.Now().Add(-whyKnown))
	}
	r.reply(jsonrpc.Set(emptyObject, "errorText", quote(why)))
}

// namesRule returns a function that completes the answer to Page.navigate: an address that a rule forbids fails with
// the rule, and any other with the reason, not with what Chrome says of a proxy.
func (p *sessionProxy) namesRule(address string) func(json.RawMessage) json.RawMessage {
	began := time.Now()
	return func(result json.RawMessage) json.RawMessage {
		if code := jsonrpc.GetString(result, "errorText"); !slices.Contains(proxyErrors, code) {
			return result
		}
		if why := p.to.WhyFailed(address, began); why != "" {
			return jsonrpc.Set(result, "errorText", quote(why))
		}
		return result
	}
}
