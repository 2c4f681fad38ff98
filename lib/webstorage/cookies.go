// Package webstorage reads the cookies and the storage of a browser into a state,
// and fills them from one, by CDP. It knows which origins pages have shown, but
// not when a state is saved or used.
package webstorage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/logins"
)

// Conn is a connection to a browser. Its functions take a browser context, or ""
// for the default one.
type Conn interface {
	// Call sends a command and waits for its answer; Send does not wait.
	Call(ctx context.Context, session, method string, params any) (json.RawMessage, error)
	Send(session, method string, params any)
}

// in adds a browser context to the parameters of a command.
func in(browserContext string, params map[string]any) map[string]any {
	if browserContext != "" {
		params["browserContextId"] = browserContext
	}
	return params
}

const cookiesAtOnce = 500

// SetCookies sets the cookies that have not expired.
func SetCookies(ctx context.Context, c Conn, browserContext string, cookies []logins.Cookie) error {
	all := []map[string]any{}
	now := float64(time.Now().Unix())
	for _, cookie := range cookies {
		if cookie.Expires < 0 || cookie.Expires > now {
			all = append(all, cookieParam(cookie))
		}
	}
	for part := range slices.Chunk(all, cookiesAtOnce) {
		_, err := c.Call(ctx, "", "Storage.setCookies", in(browserContext, map[string]any{"cookies": part}))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			continue
		}
		for _, cookie := range part { // Chrome does not say which one it refuses
			_, err := c.Call(ctx, "", "Storage.setCookies",
				in(browserContext, map[string]any{"cookies": []any{cookie}}))
			if err != nil {
				return fmt.Errorf("cannot set the cookie %q of %v: %w", cookie["name"], cookie["domain"], err)
			}
		}
	}
	return nil
}

// cookieParam returns a cookie as Storage.setCookies takes it.
func cookieParam(c logins.Cookie) map[string]any {
	p := map[string]any{"name": c.Name, "value": c.Value, "httpOnly": c.HTTPOnly, "secure": c.Secure}
	optional := map[string]string{"url": c.URL, "domain": c.Domain, "path": c.Path, "sameSite": c.SameSite,
		"priority": c.Priority, "sourceScheme": c.SourceScheme}
	for name, value := range optional {
		if value != "" {
			p[name] = value
		}
	}
	if c.Expires >= 0 {
		p["expires"] = c.Expires
	}
	if c.SourcePort != 0 {
		p["sourcePort"] = c.SourcePort
	}
	if c.PartitionKey != "" {
		p["partitionKey"] = map[string]any{"topLevelSite": c.PartitionKey,
			"hasCrossSiteAncestor": c.HasCrossSiteAncestor != nil && *c.HasCrossSiteAncestor}
	}
	return p
}

// Cookies returns the cookies.
func Cookies(ctx context.Context, c Conn, browserContext string) ([]logins.Cookie, error) {
	got, err := c.Call(ctx, "", "Storage.getCookies", in(browserContext, map[string]any{}))
	if err != nil {
		return nil, err
	}
	all := []logins.Cookie{}
	for raw := range jsonrpc.Elements(jsonrpc.Get(got, "cookies")) {
		var c struct {
			logins.Cookie
			PartitionKey *struct {
				TopLevelSite         string `json:"topLevelSite"`
				HasCrossSiteAncestor bool   `json:"hasCrossSiteAncestor"`
			} `json:"partitionKey"`
		}
		if err := json.Unmarshal(raw, &c); err != nil {
			return nil, errors.New("Chrome sent one that is not valid")
		}
		if c.PartitionKey != nil {
			c.Cookie.PartitionKey = c.PartitionKey.TopLevelSite
			c.HasCrossSiteAncestor = &c.PartitionKey.HasCrossSiteAncestor
		}
		dropDefaults(&c.Cookie)
		all = append(all, c.Cookie)
	}
	return all, nil
}

// dropDefaults drops the members of a cookie that Chrome gives it without them.
func dropDefaults(c *logins.Cookie) {
	scheme, port := "NonSecure", 80
	if c.Secure {
		scheme, port = "Secure", 443
	}
	if c.SourceScheme == scheme && c.SourcePort == port {
		c.SourceScheme, c.SourcePort = "", 0
	}
	if c.Priority == "Medium" {
		c.Priority = ""
	}
}
