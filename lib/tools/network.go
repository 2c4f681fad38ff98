package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"btools/lib/browse"
)

func addRoute(ctx context.Context, r *reply, t *browse.Tab, a struct {
	Pattern, ContentType, RemoveHeaders string
	Status                              float64
	Body                                *string
	Headers                             []string
}) error {
	if isBlank(a.Pattern) {
		return errors.New("pattern is empty, which matches no request: ** matches all")
	}
	route := browse.Route{Pattern: a.Pattern, Status: int(a.Status), Body: a.Body, ContentType: a.ContentType}
	for _, h := range a.Headers {
		name, value, ok := strings.Cut(h, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return fmt.Errorf("Invalid header %q: expected \"Name: Value\"", h)
		}
		route.Headers = append(route.Headers, browse.Header{Name: name, Value: strings.TrimSpace(value)})
	}
	for name := range strings.SplitSeq(a.RemoveHeaders, ",") {
		if name = strings.TrimSpace(name); name != "" {
			route.Remove = append(route.Remove, name)
		}
	}
	return r.says(t.Browser().AddRoute(route), "Route added for pattern: %s", oneLine(a.Pattern))
}

// maxBody is how many characters of a route's body are listed.
const maxBody = 50

func routeList(ctx context.Context, r *reply, t *browse.Tab, _ none) error {
	all := t.Browser().Routes()
	for i, route := range all {
		var details []string
		add := func(name, value string) {
			if value != "" {
				details = append(details, name+"="+value)
			}
		}
		if route.Status != 0 {
			add("status", fmt.Sprint(route.Status))
		}
		if route.Body != nil {
			add("body", clipped(*route.Body, maxBody))
		}
		add("contentType", route.ContentType)
		var headers []string
		for _, h := range route.Headers {
			headers = append(headers, h.Name+": "+h.Value)
		}
		add("headers", strings.Join(headers, "; "))
		add("removeHeaders", strings.Join(route.Remove, ","))
		text := ""
		if details != nil {
			text = " (" + strings.Join(details, ", ") + ")"
		}
		r.say("%d. %s%s", i+1, route.Pattern, text)
	}
	if len(all) == 0 {
		r.say("No active routes")
	}
	return nil
}

func unroute(ctx context.Context, r *reply, t *browse.Tab, a struct{ Pattern string }) error {
	if n := t.Browser().RemoveRoutes(a.Pattern); a.Pattern == "" {
		r.say("Removed all %d route(s)", n)
	} else {
		r.say("Removed %d route(s) for pattern: %s", n, oneLine(a.Pattern))
	}
	return nil
}

func setNetworkState(ctx context.Context, r *reply, t *browse.Tab, a struct{ State string }) error {
	change, _ := json.Marshal(map[string]bool{"offline": a.State == "offline"})
	_, err := t.Browser().Emulate(ctx, change)
	return r.says(err, "Network is now %s", a.State)
}

// emulates changes what the pages take their device, place and language for.
func emulates(ctx context.Context, r *reply, _ browse.Page, change json.RawMessage) error {
	now, err := r.browser.Emulate(ctx, change)
	if err != nil {
		return err
	}
	r.page = pageState
	all, err := json.Marshal(now)
	r.say("All pages emulate %s", all)
	return err
}
