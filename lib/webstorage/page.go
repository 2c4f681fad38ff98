package webstorage

import (
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"btools/lib/jsonrpc"
	"btools/lib/logins"
)

var (
	//go:embed scripts/fill.js
	fillScript string
	//go:embed scripts/read.js
	readScript string
)

const originTimeout = 30 * time.Second

// Page is a page that nobody sees, in which scripts read and fill the storage of
// any origin: it shows blank documents, without the network. Answer must get the
// events of its connection. It ends with the connection, or by Close.
type Page struct {
	conn            Conn
	target, session string
}

// OpenPage opens a page.
func OpenPage(ctx context.Context, c Conn, browserContext string) (*Page, error) {
	p := &Page{conn: c}
	got, err := c.Call(ctx, "", "Target.createTarget",
		in(browserContext, map[string]any{"url": "about:blank", "hidden": true, "background": true}))
	if err == nil {
		p.target = jsonrpc.GetString(got, "targetId")
		got, err = c.Call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": p.target, "flatten": true})
	}
	p.session = jsonrpc.GetString(got, "sessionId")
	if err == nil {
		err = p.prepare(ctx)
	}
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("cannot open a page for the storage: %w", err)
	}
	return p, nil
}

// In returns a page that has been opened already, as one in which storage is read and
// filled. It is not closed by Close.
func In(ctx context.Context, c Conn, session string) (*Page, error) {
	p := &Page{conn: c, session: session}
	return p, p.prepare(ctx)
}

// prepare has scripts see blank documents only.
func (p *Page) prepare(ctx context.Context) (err error) {
	for _, command := range []struct {
		method string
		params any
	}{
		{"Network.enable", nil}, // or the next has no effect
		{"Network.setBypassServiceWorker", map[string]bool{"bypass": true}}, // it would answer before Fetch does
		{"Fetch.enable", map[string]any{"patterns": []map[string]string{{"urlPattern": "*"}}}},
	} {
		if err == nil {
			_, err = p.conn.Call(ctx, p.session, command.method, command.params)
		}
	}
	return err
}

// Target returns the ID of the page's target.
func (p *Page) Target() string { return p.target }

// Close closes the page and does not wait.
func (p *Page) Close() {
	if p.target != "" {
		p.conn.Send("", "Target.closeTarget", map[string]string{"targetId": p.target})
	}
}

// blank is a document, which asks for no icon.
var blank = base64.StdEncoding.EncodeToString([]byte(`<!doctype html><link rel="icon" href="data:,">`))

// Answer answers a request of a page for a document; other events of the
// connection are not its own.
func Answer(c Conn, method, session string, params json.RawMessage) {
	if method != "Fetch.requestPaused" {
		return
	}
	c.Send(session, "Fetch.fulfillRequest", map[string]any{
		"requestId": jsonrpc.GetString(params, "requestId"), "responseCode": 200, "body": blank,
		"responseHeaders": []map[string]string{{"name": "content-type", "value": "text/html"}},
	})
}

// maxPart is how many bytes of an argument, or characters of a result, are in one
// message: Chrome ends a connection with a message of 100 MiB.
const maxPart = 2 << 20

// take is a function that takes a part of the global text; no part ends within a
// character.
const take = `() => {
	const last = text.charCodeAt(%[1]d - 1), n = last >= 0xd800 && last < 0xdc00 ? %[1]d - 1 : %[1]d;
	const part = text.slice(0, n);
	text = text.slice(n);
	return { part, more: text !== '' };
}`

// run calls an asynchronous function of JavaScript with an argument in a document of
// an origin, and returns its result.
func (p *Page) run(ctx context.Context, origin, function string, argument any) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, originTimeout, fmt.Errorf("no answer within %v", originTimeout))
	defer cancel()
	text, err := json.Marshal(argument)
	if err != nil {
		return nil, err
	}
	got, err := p.conn.Call(ctx, p.session, "Page.navigate", map[string]string{"url": origin + "/"})
	if err == nil && jsonrpc.GetString(got, "errorText") != "" {
		err = errors.New(jsonrpc.GetString(got, "errorText"))
	}
	if err != nil {
		return nil, err
	}
	expression := "globalThis.text = ''; globalThis.take = " + fmt.Sprintf(take, maxPart) + "; "
	for len(text) > maxPart {
		n := maxPart
		for !utf8.RuneStart(text[n]) {
			n--
		}
		if _, err := p.evaluate(ctx, expression+"text += "+quote(text[:n])+"; 0"); err != nil {
			return nil, err
		}
		text, expression = text[n:], ""
	}
	expression += "text += " + quote(text) + "; (" + strings.TrimSpace(function) +
		")(JSON.parse(text)).then((v) => { text = JSON.stringify(v); return take(); })"
	var result strings.Builder
	for more := true; more; expression = "take()" {
		value, err := p.evaluate(ctx, expression)
		if err != nil {
			return nil, err
		}
		result.WriteString(jsonrpc.GetString(value, "part"))
		more = string(jsonrpc.Get(value, "more")) == "true"
	}
	return json.RawMessage(result.String()), nil
}

func quote(text []byte) string {
	quoted, _ := json.Marshal(string(text))
	return string(quoted)
}

// evaluate returns the value of an expression, or of its promise.
func (p *Page) evaluate(ctx context.Context, expression string) (json.RawMessage, error) {
	got, err := p.conn.Call(ctx, p.session, "Runtime.evaluate",
		map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true})
	if err == nil && jsonrpc.Get(got, "exceptionDetails") != nil {
		// The text of an exception might have a value in it.
		err = fmt.Errorf("the script failed at line %s", jsonrpc.Get(got, "exceptionDetails", "lineNumber"))
	}
	return jsonrpc.Get(got, "result", "value"), err
}

// Fill fills the storage of an origin. why says what kept it from that.
func (p *Page) Fill(ctx context.Context, o logins.Origin) (why string, err error) {
	got, err := p.run(ctx, o.Origin, fillScript, o)
	if err != nil {
		return "", err
	}
	return why, json.Unmarshal(got, &why)
}

// clearScript removes what Fill fills. A database that a page has open stays.
const clearScript = `async () => {
	localStorage.clear();
	for (const { name } of await indexedDB.databases()) {
		const request = indexedDB.deleteDatabase(name);
		await new Promise((done) => request.onsuccess = request.onerror = request.onblocked = done);
	}
	return '';
}`

// Clear removes the storage of an origin.
func (p *Page) Clear(ctx context.Context, origin string) error {
	_, err := p.run(ctx, origin, clearScript, nil)
	return err
}

// Read reads the storage of an origin; nil: it has none. lost says what could
// not be read.
func (p *Page) Read(ctx context.Context, origin string) (o *logins.Origin, lost []string, err error) {
	return p.read(ctx, origin, false)
}

// ReadQuietly is Read but for what key generators give out next, which Chrome reports
// as a change of the database when it is found out.
func (p *Page) ReadQuietly(ctx context.Context, origin string) (o *logins.Origin, lost []string, err error) {
	return p.read(ctx, origin, true)
}

func (p *Page) read(ctx context.Context, origin string, quiet bool) (o *logins.Origin, lost []string, err error) {
	got, err := p.run(ctx, origin, readScript,
		map[string]any{"origin": origin, "max": logins.MaxOrigin, "quiet": quiet})
	if err != nil {
		return nil, nil, err
	}
	var result struct {
		Text, Error string
		Lost        []string
	}
	if err := json.Unmarshal(got, &result); err != nil {
		return nil, nil, errors.New("the script returned no object")
	}
	if result.Error != "" {
		return nil, nil, errors.New(result.Error)
	}
	if result.Text != "" {
		o = &logins.Origin{}
		if err := json.Unmarshal([]byte(result.Text), o); err != nil {
			return nil, nil, errors.New("the script returned no storage")
		}
	}
	return o, result.Lost, nil
}
