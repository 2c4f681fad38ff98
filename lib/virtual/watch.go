package virtual

import (
	"context"
	"fmt"
	"net"
	"strings"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/jsonrpc"
	"btools/lib/record"
	"btools/lib/virtual/policy"
	"btools/lib/websocket"
)

// WatchBrowser answers attach for the browser of a record that is not shown as several ones; instead says where it
// would be. The view ends with until: the browser may be somebody else's then.
func WatchBrowser(until context.Context, rec *record.Record, instead string) (any, error) {
	var i record.Instance
	switch rec.Get("instance", &i); {
	case i.Protocol == record.BiDi:
		return nil, control.Errorf(control.Unavailable, "Firefox sends no pictures of its pages")
	case i.WSURL == "":
		return nil, control.Errorf(control.Unavailable, "the browser has no port of its own")
	}
	return control.Taken{Answer: api.Attached{Why: "This is a whole browser, which nobody can take over: " + instead +
		"."},
		Do: func(ctx context.Context, c net.Conn) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(until, cancel)()
			watch(ctx, websocket.New(c, false, nil), i.WSURL)
		}}, nil
}

// watch shows a person a browser that is not shown as several ones: it relays between the person's WebSocket and the
// browser's until one ends. Only what looks is passed on. The browser's other clients go on meanwhile: nothing
// holds them.
func watch(ctx context.Context, person *websocket.Conn, address string) error {
	browser, err := websocket.Dial(ctx, address)
	if err != nil {
		person.Close(websocket.GoingAway, "the browser does not answer")
		return fmt.Errorf("cannot connect to the browser: %w", err)
	}
	defer context.AfterFunc(ctx, func() { person.Close(websocket.GoingAway, "the lease or its program has ended") })()
	done := make(chan struct{})
	go func() {
		defer close(done)
		websocket.EndAs(person, websocket.Pass(person, browser))
	}()
	err = passViews(browser, person)
	websocket.EndAs(browser, err)
	<-done
	return err
}

// passViews passes the commands of a person on that look, and refuses the others, until a connection ends.
func passViews(browser, person *websocket.Conn) error {
	for {
		m, err := person.Next()
		var b []byte
		if err == nil {
			b, err = m.Bytes()
		}
		if err != nil {
			return err
		}
		c, refused := policy.Parse(b)
		if refused == nil && (!policy.Views(c.Method) || strings.HasPrefix(c.Method, "Btools.")) {
			refused = jsonrpc.Errorf(policy.ServerError, "%s: a whole browser can only be looked at", c.Method)
		}
		if refused == nil {
			_, refused = policy.Check(c, nil)
		}
		if refused == nil {
			err = browser.Write(b)
		} else {
			err = person.Write(policy.Failure(c, refused))
		}
		if err != nil {
			return err
		}
	}
}
