package virtual

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"btools/lib/forward"
	"btools/lib/jsonrpc"
)

// openProxy starts the forwarder to the session's proxy, which ends with the
// session.
func (s *Session) openProxy() (err error) {
	switch {
	case s.options.Proxy == nil:
		return nil
	case s.options.Default:
		return errors.New("the browser's default context has the proxy that the browser was launched with: " +
			"the session cannot have its own")
	}
	b := s.browser
	s.proxy, err = forward.Listen(forward.Options{Upstream: s.options.Proxy, Browser: b.process, Log: b.log})
	return err
}

func (s *Session) closeProxy() {
	if s.proxy != nil {
		s.proxy.Close()
	}
}

// contextParams returns the parameters of Target.createBrowserContext: those of
// a client, with the session's proxy unless they name another.
func (s *Session) contextParams(params json.RawMessage) json.RawMessage {
	params = jsonrpc.Set(params, "disposeOnDetach", json.RawMessage("true"))
	if s.proxy == nil || jsonrpc.GetString(params, "proxyServer") != "" {
		return params
	}
	params = jsonrpc.Set(params, "proxyServer", quote(s.proxy.URL()))
	if jsonrpc.Get(params, "proxyBypassList") == nil && s.options.ProxyBypass != "" {
		params = jsonrpc.Set(params, "proxyBypassList", quote(s.options.ProxyBypass))
	}
	return params
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
