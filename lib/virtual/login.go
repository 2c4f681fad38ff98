package virtual

import (
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/states"
)

// A session that starts with a state has its cookies at once. The storage of an
// origin is filled just before the session's first document of that origin: the
// request for the document is held up meanwhile, and a page that no client sees
// shows a blank document of the origin, whose storage a script fills. So a
// session pays for the origins that it visits, and no page sees a storage that
// is not complete.

var (
	//go:embed scripts/restore.js
	restoreScript string
	//go:embed scripts/collect.js
	collectScript string
)

const (
	restoreTimeout = time.Minute     // to fill the storage of the origins that are needed
	saveTimeout    = 5 * time.Minute // to read the storage of all origins
	originTimeout  = 30 * time.Second
	cookiesAtOnce  = 500
	// maxVisited is how many origins of a session are saved, the latest.
	maxVisited = 500
)

// StateStatus is the state with which a session has started.
type StateStatus struct {
	Name  string `json:"name"`
	Error string `json:"error,omitempty"` // the last origin whose storage could not be filled, and why
}

// storage is the storage of an origin of the session's state.
type storage struct {
	origin states.Origin
	begun  bool
	done   chan struct{} // closed when it has been filled
}

// Restore gives a new session, which no client has used, the cookies of a state,
// and arranges for the storage of its origins. The session does not change the
// state, and nor may the caller. The name is for Stats, "" if it has none.
func (s *Session) Restore(ctx context.Context, name string, state *states.State) error {
	if s.options.Default {
		return errors.New("the session with the browser's own profile has its logins: it cannot start with a state")
	}
	if err := s.setCookies(ctx, state.Cookies); err != nil {
		return err
	}
	b := s.browser
	var gated sync.WaitGroup
	b.mu.Lock()
	if name != "" {
		s.state = &StateStatus{Name: name}
	}
	for _, o := range state.Origins {
		s.startedWith = append(s.startedWith, o.Origin)
		s.unfilled[o.Origin] = &storage{origin: o, done: make(chan struct{})}
	}
	for id, own := range s.ownSessions {
		if t := b.targets[id]; t != nil && s.isGatedLocked(t) {
			gated.Add(1)
			s.link.begin(own, "Fetch.enable", s.gateLocked(), func(json.RawMessage, error) { gated.Done() })
		}
	}
	b.mu.Unlock()
	done := make(chan struct{})
	go func() {
		gated.Wait() // each command is answered, at the latest when the link ends
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Session) setCookies(ctx context.Context, cookies []states.Cookie) error {
	all := []map[string]any{}
	now := float64(time.Now().Unix())
	for _, c := range cookies {
		if c.Expires < 0 || c.Expires > now {
			all = append(all, cookieParam(c))
		}
	}
	for part := range slices.Chunk(all, cookiesAtOnce) {
		_, err := s.link.call(ctx, "", "Storage.setCookies",
			map[string]any{"browserContextId": s.base, "cookies": part})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			continue
		}
		for _, c := range part { // Chrome does not say which one it refuses
			_, err := s.link.call(ctx, "", "Storage.setCookies",
				map[string]any{"browserContextId": s.base, "cookies": []any{c}})
			if err != nil {
				return fmt.Errorf("cannot set the cookie %q of %v: %w", c["name"], c["domain"], err)
			}
		}
	}
	return nil
}

// cookieParam returns a cookie as Storage.setCookies takes it.
func cookieParam(c states.Cookie) map[string]any {
	p := map[string]any{"name": c.Name, "value": c.Value, "httpOnly": c.HTTPOnly, "secure": c.Secure}
	optional := map[string]string{"url": c.URL, "domain": c.Domain, "path": c.Path, "sameSite": c.SameSite}
	for name, value := range optional {
		if value != "" {
			p[name] = value
		}
	}
	if c.Expires >= 0 {
		p["expires"] = c.Expires
	}
	if c.PartitionKey != "" {
		p["partitionKey"] = map[string]any{"topLevelSite": c.PartitionKey,
			"hasCrossSiteAncestor": c.HasCrossSiteAncestor != nil && *c.HasCrossSiteAncestor}
	}
	return p
}

// isGatedLocked reports whether a target is a page with the session's state.
func (s *Session) isGatedLocked(t *target) bool {
	return len(s.unfilled) > 0 && t.typ == "page" && t.context == s.base
}

// gateLocked returns the parameters of Fetch.enable that hold up the documents
// of the origins whose storage has not been filled.
func (s *Session) gateLocked() any {
	patterns := []map[string]string{}
	for origin := range s.unfilled {
		patterns = append(patterns, map[string]string{"urlPattern": origin + "/*", "resourceType": "Document"})
	}
	return map[string]any{"patterns": patterns}
}

// documentRequested fills the storage of the origin of a document that is held
// up, and lets it go on.
func (s *Session) documentRequested(session string, params json.RawMessage) {
	proceed := func() {
		s.link.send(session, "Fetch.continueRequest",
			map[string]string{"requestId": jsonrpc.GetString(params, "requestId")})
	}
	s.browser.mu.Lock()
	o := s.unfilled[originOf(jsonrpc.GetString(params, "request", "url"))]
	s.browser.mu.Unlock()
	if o == nil {
		proceed()
		return
	}
	s.work.Go(func() {
		s.fill([]*storage{o})
		proceed()
	})
}

// fillAll fills the storage of all origins, before a client answers requests
// itself: its documents would not be held up.
func (s *Session) fillAll() {
	s.browser.mu.Lock()
	all := slices.Collect(maps.Values(s.unfilled))
	s.browser.mu.Unlock()
	s.fill(all)
}

// fill fills the storage of origins, each once.
func (s *Session) fill(all []*storage) {
	var own []*storage
	s.browser.mu.Lock()
	for _, o := range all {
		if !o.begun {
			o.begun = true
			own = append(own, o)
		}
	}
	s.browser.mu.Unlock()
	ctx, cancel := s.lasting(restoreTimeout)
	defer cancel()
	if len(own) > 0 {
		h, err := s.openHidden(ctx)
		for _, o := range own {
			var why string
			if err == nil {
				why, err = h.restore(ctx, o.origin)
			}
			s.filled(o, why, err)
		}
		h.close()
	}
	for _, o := range all {
		<-o.done // whoever fills it bounds itself
	}
}

// filled notes that the storage of an origin has been filled, or could not be.
func (s *Session) filled(o *storage, why string, err error) {
	if err != nil {
		why = err.Error()
	}
	b := s.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	if why != "" && !s.over {
		why = "cannot restore the storage of " + o.origin.Origin + ": " + why
		b.log.Warn(why)
		if s.state != nil {
			s.state.Error = why
		}
	}
	delete(s.unfilled, o.origin.Origin)
	close(o.done)
	for id, session := range s.ownSessions {
		switch t := b.targets[id]; {
		case t == nil || t.typ != "page" || t.context != s.base:
		case len(s.unfilled) == 0:
			s.link.send(session, "Fetch.disable", nil)
		default:
			s.link.send(session, "Fetch.enable", s.gateLocked())
		}
	}
}

// lasting returns a context that ends with the session, and after a time.
func (s *Session) lasting(d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), d, fmt.Errorf("it took more than %v", d))
	return ctx, s.bind(ctx, cancel)
}

// bind cancels a context when the session begins to end. The function that it
// returns cancels it, too, and must be called.
func (s *Session) bind(ctx context.Context, cancel context.CancelFunc) context.CancelFunc {
	over := make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-s.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	return func() {
		cancel()
		<-over
	}
}

// originOf returns the origin of a URL, as Chrome writes it; "" if that is not a
// web page.
func originOf(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// hidden is a page of the session's context that no client sees. It shows blank
// documents of any origin, without the network. It ends with its connection.
type hidden struct {
	link    *link
	session string
}

// blank is a document, which asks for no icon.
var blank = base64.StdEncoding.EncodeToString([]byte(`<!doctype html><link rel="icon" href="data:,">`))

func (s *Session) openHidden(ctx context.Context) (*hidden, error) {
	h := &hidden{}
	opened := make(chan struct{})
	l, err := s.browser.dial(ctx, func(method, session string, params json.RawMessage) {
		if method == "Fetch.requestPaused" {
			<-opened // at once: l is only about to be stored
			h.link.send(session, "Fetch.fulfillRequest", map[string]any{
				"requestId": jsonrpc.GetString(params, "requestId"), "responseCode": 200, "body": blank,
				"responseHeaders": []map[string]string{{"name": "content-type", "value": "text/html"}},
			})
		}
	})
	if err != nil {
		close(opened)
		return nil, err
	}
	h.link = l
	close(opened)
	got, err := l.call(ctx, "", "Target.createTarget",
		map[string]any{"url": "about:blank", "browserContextId": s.base, "hidden": true, "background": true})
	if err == nil {
		got, err = l.call(ctx, "", "Target.attachToTarget",
			map[string]any{"targetId": jsonrpc.GetString(got, "targetId"), "flatten": true})
	}
	if err == nil {
		h.session = jsonrpc.GetString(got, "sessionId")
		_, err = l.call(ctx, h.session, "Fetch.enable",
			map[string]any{"patterns": []map[string]string{{"urlPattern": "*"}}})
	}
	if err != nil {
		h.close()
		return nil, fmt.Errorf("cannot open a page for the storage: %w", err)
	}
	return h, nil
}

func (h *hidden) close() {
	if h != nil {
		h.link.close()
	}
}

// run calls a function of JavaScript with an argument in a document of an
// origin, and returns its result.
func (h *hidden) run(ctx context.Context, origin, function string, argument json.RawMessage) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, originTimeout, fmt.Errorf("no answer within %v", originTimeout))
	defer cancel()
	got, err := h.link.call(ctx, h.session, "Page.navigate", map[string]string{"url": origin + "/"})
	if err == nil && jsonrpc.GetString(got, "errorText") != "" {
		err = errors.New(jsonrpc.GetString(got, "errorText"))
	}
	if err != nil {
		return nil, err
	}
	got, err = h.link.call(ctx, h.session, "Runtime.evaluate", map[string]any{
		"expression":   "(" + strings.TrimSpace(function) + ")(" + string(argument) + ")",
		"awaitPromise": true, "returnByValue": true,
	})
	if err == nil && jsonrpc.Get(got, "exceptionDetails") != nil {
		// The text of an exception might have a value in it.
		err = fmt.Errorf("the script failed at line %s", jsonrpc.Get(got, "exceptionDetails", "lineNumber"))
	}
	if err != nil {
		return nil, err
	}
	return jsonrpc.Get(got, "result", "value"), nil
}

// restore fills the storage of an origin. why says what kept it from that.
func (h *hidden) restore(ctx context.Context, o states.Origin) (why string, err error) {
	argument, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	got, err := h.run(ctx, o.Origin, restoreScript, argument)
	if err != nil {
		return "", err
	}
	return why, json.Unmarshal(got, &why)
}

// collect reads the storage of an origin; nil: it has none. lost says what could
// not be read.
func (h *hidden) collect(ctx context.Context, origin string) (o *states.Origin, lost []string, err error) {
	argument, _ := json.Marshal(map[string]any{"origin": origin, "max": states.MaxOrigin})
	got, err := h.run(ctx, origin, collectScript, argument)
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
		o = &states.Origin{}
		if err := json.Unmarshal([]byte(result.Text), o); err != nil {
			return nil, nil, errors.New("the script returned no storage")
		}
	}
	return o, result.Lost, nil
}

// State returns the cookies and the storage of the session's base context, and
// what could not be read. The storage is that of the origins that the session
// has visited or started with.
func (s *Session) State(ctx context.Context) (state *states.State, lost []string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, saveTimeout, fmt.Errorf("it took more than %v", saveTimeout))
	defer s.bind(ctx, cancel)()
	state = &states.State{Origins: []states.Origin{}}
	if state.Cookies, err = s.cookies(ctx); err != nil {
		return nil, nil, s.because(fmt.Errorf("cannot read the cookies: %w", err))
	}
	untouched, origins := s.originsToSave(ctx)
	state.Origins = append(state.Origins, untouched...)
	if len(origins) == 0 {
		return state, nil, nil
	}
	h, err := s.openHidden(ctx)
	if err != nil {
		return nil, nil, s.because(err)
	}
	defer h.close()
	for _, origin := range origins {
		o, gaps, err := h.collect(ctx, origin)
		if err != nil {
			return nil, nil, s.because(fmt.Errorf("cannot read the storage of %s: %w", origin, err))
		}
		for _, gap := range gaps {
			lost = append(lost, origin+": "+gap)
		}
		if o != nil {
			state.Origins = append(state.Origins, *o)
		}
	}
	slices.SortFunc(state.Origins, func(a, b states.Origin) int { return strings.Compare(a.Origin, b.Origin) })
	return state, lost, nil
}

// because returns why a session has ended if that explains an error.
func (s *Session) because(err error) error {
	select {
	case <-s.ended:
		return s.why
	default:
		return err
	}
}

func (s *Session) cookies(ctx context.Context) ([]states.Cookie, error) {
	got, err := s.link.call(ctx, "", "Storage.getCookies", map[string]string{"browserContextId": s.base})
	if err != nil {
		return nil, err
	}
	all := []states.Cookie{}
	for raw := range jsonrpc.Elements(jsonrpc.Get(got, "cookies")) {
		var c struct {
			states.Cookie
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
		all = append(all, c.Cookie)
	}
	return all, nil
}

// visitedLocked notes the origin of a document of the base context.
func (s *Session) visitedLocked(t *target) {
	if t.context != s.base || t.typ != "page" {
		return
	}
	origin := originOf(jsonrpc.GetString(t.info, "url"))
	if origin == "" {
		return
	}
	s.visits++
	s.visited[origin] = s.visits
	if len(s.visited) > 2*maxVisited {
		for _, old := range s.latestLocked()[maxVisited:] {
			delete(s.visited, old)
		}
	}
}

// latestLocked returns the origins that were visited, the latest first.
func (s *Session) latestLocked() []string {
	return slices.SortedFunc(maps.Keys(s.visited), func(a, b string) int { return s.visited[b] - s.visited[a] })
}

// originsToSave returns the storage of origins as the session started with it,
// which no page has seen, and the origins whose storage has to be read.
func (s *Session) originsToSave(ctx context.Context) (untouched []states.Origin, origins []string) {
	b := s.browser
	b.mu.Lock()
	pages := slices.Collect(maps.Values(s.ownSessions))
	b.mu.Unlock()
	frames := map[string]bool{}
	for _, page := range pages {
		bounded, cancel := context.WithTimeout(ctx, findFrameTimeout) // a page may be hung
		tree, err := s.link.call(bounded, page, "Page.getFrameTree", nil)
		cancel()
		if err == nil {
			addFrameOrigins(frames, jsonrpc.Get(tree, "frameTree"))
		}
	}
	b.mu.Lock()
	origins = s.latestLocked()
	for _, o := range s.startedWith {
		frames[o] = true
	}
	var waits []*storage
	for origin, o := range s.unfilled {
		if o.begun {
			waits = append(waits, o)
		} else {
			untouched = append(untouched, o.origin)
			delete(frames, origin)
			origins = slices.DeleteFunc(origins, func(v string) bool { return v == origin })
		}
	}
	b.mu.Unlock()
	for _, o := range waits {
		<-o.done
	}
	origins = origins[:min(len(origins), maxVisited)]
	for origin := range frames {
		if !slices.Contains(origins, origin) {
			origins = append(origins, origin)
		}
	}
	return untouched, origins
}

// addFrameOrigins adds the origins of the frames in a FrameTree.
func addFrameOrigins(all map[string]bool, tree json.RawMessage) {
	if origin := originOf(jsonrpc.GetString(tree, "frame", "url")); origin != "" {
		all[origin] = true
	}
	for child := range jsonrpc.Elements(jsonrpc.Get(tree, "childFrames")) {
		addFrameOrigins(all, child)
	}
}
