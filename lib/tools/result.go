package tools

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"btools/lib/browse"
	"btools/lib/results"
	"btools/lib/secrets"
)

func failed(err error) *mcp.CallToolResult {
	return mcp.NewToolResultError("### Error\n" + err.Error())
}

// reply collects what a call has to tell.
type reply struct {
	access
	output
	told *toldTools // of pages, when the call came

	asTask bool // it may take as long as it needs

	acts     bool               // what it does may have effect for a while
	opens    bool               // the page is its result
	at       *results.PageState // nil: it was not looked at
	showTabs bool
	// What is shown of the page: nothing, its address and title, or a snapshot too.
	page     pageView
	seen     bool // the page has told its address and title since the call has done its work
	snapshot browse.SnapshotOptions
	onlyNew  bool            // of the snapshot, what has changed since the last one that was shown
	on       []browse.Target // the elements that were acted on, by the actions in their order
	proven   bool            // the tool has seen itself what came of it
}

// output is the result of a call itself, beside what is told of the page.
type output struct {
	form    results.Form
	secrets *secrets.Set
	value   *string // the result alone; nil: the results say what it is
	returns string  // what a script has returned, or the rows of a list, in JSON
	results []string
	actions []string
	images  []mcp.Content

	structured any
}

// access is a call's way to the browser and its page.
type access struct {
	server  *Server
	browser browse.Driver // nil: the tool needed none
	tab     browse.Page
	before  browse.Moment // when the call began; nil: nothing that it causes is told of
	since   []string      // what has happened between the last call and this one
	was     browse.Moment // the page as the agent knew it before; nil: it knew none
	began   browse.Moment // when the browser was reached; nil: it had no tab
	left    browse.Moment // the page as the agent knows it by this call
}

type pageView int

const (
	noPage pageView = iota
	pageState
	pageChanges  // and what the snapshot has that the last one had not
	pageSnapshot // and the whole snapshot
)

// say adds to the result itself.
func (r *output) say(format string, args ...any) {
	r.results = append(r.results, fmt.Sprintf(format, args...))
}

// did tells of an action.
func (r *output) did(format string, args ...any) {
	r.actions = append(r.actions, "- "+fmt.Sprintf(format, args...))
}

// says adds to the result, unless there is an error, which it returns.
func (r *output) says(err error, format string, args ...any) error {
	if err == nil {
		r.say(format, args...)
	}
	return err
}

// tells tells of an action, unless it has failed, and returns its error.
func (r *output) tells(err error, format string, args ...any) error {
	if err == nil {
		r.did(format, args...)
	}
	return err
}

// quote adds text of a page to the result, which it is alone.
func (r *output) quote(kind, text string) {
	r.say("%s", fenced(kind, text))
	r.value = &text
}

// image adds an image.
func (r *output) image(data []byte, mime string) {
	r.images = append(r.images, mcp.NewImageContent(base64.StdEncoding.EncodeToString(data), mime))
}

// data adds data that no agent can read, which comes from a URL. The coordinator
// keeps it.
func (r *output) data(data []byte, mime, url string) {
	r.images = append(r.images, mcp.NewEmbeddedResource(mcp.BlobResourceContents{URI: url, MIMEType: mime,
		Blob: base64.StdEncoding.EncodeToString(r.secrets.Masked(data))}))
}

// reach connects to the browser.
func (r *access) reach(ctx context.Context) (b browse.Driver, err error) {
	if b, err = r.server.connect(ctx); err != nil {
		return nil, err
	}
	r.browser, r.began = b, b.Left()
	r.left = r.began
	if left := r.server.left; left != nil && left.Is(b) {
		c := left.Since()
		if r.was, r.since = left, c.Events; !c.Known {
			r.left = left
		}
	}
	return b, nil
}

// use connects to the browser and returns the current tab.
func (r *access) use(ctx context.Context) (browse.Page, error) {
	b, err := r.reach(ctx)
	if err != nil {
		return nil, err
	}
	if r.tab, err = b.Current(ctx); err != nil {
		return nil, err
	}
	r.before = r.tab.Before()
	return r.tab, nil
}

// errModal is the error of a tool that cannot do anything while a dialog is open.
var errModal = errors.New("a dialog is open, which stops the page: call browser_handle_dialog first")

// act is use for a tool that cannot work while a dialog is open.
func (r *access) act(ctx context.Context) (browse.Page, error) {
	t, err := r.use(ctx)
	if err == nil && t.Dialog() != "" {
		err = errModal
	}
	return t, err
}

// touch is act for a tool that does something to whatever has the focus or is at a point.
func (r *access) touch(ctx context.Context) (browse.Page, error) {
	t, err := r.act(ctx)
	if err == nil {
		t.CatchUp()
		err = browse.Strayed(ctx)
	}
	return t, err
}

// strayed returns why what the agent has learnt of a page is not used on the one that is open, nil if it is.
func (r *access) strayed() error {
	switch {
	case r.tab == nil:
		return nil
	case r.was != nil:
		return r.was.Strayed(r.tab)
	}
	return r.before.Strayed(r.tab)
}

// unheaded are the sections that need no heading in a shell: their lines say what they are.
var unheaded = map[string]bool{"Result": true, "Action": true, "Page": true, "Snapshot": true}

// result writes the sections of the result.
func (r *reply) result(ctx context.Context, err error) *mcp.CallToolResult {
	var b, page strings.Builder
	into := func(b *strings.Builder) func(string, ...string) {
		return func(head string, lines ...string) {
			lines = slices.DeleteFunc(lines, func(l string) bool { return l == "" })
			if len(lines) > 0 && !(r.inShell() && unheaded[head]) {
				fmt.Fprintf(b, "### %s\n", head)
			}
			for _, line := range lines {
				b.WriteString(line + "\n")
			}
		}
	}
	section := into(&b)
	var since []string
	for _, event := range r.since {
		since = append(since, "- "+clipped(event, maxAddress))
	}
	if !r.inShell() {
		section("Since the last call", since...)
	}
	if err != nil {
		section("Error", errorText(err))
	} else if r.acts && r.tab != nil {
		r.before.Rest(ctx)
	}
	tabs := r.tabs(ctx)
	if r.browser != nil {
		if r.acts || r.showTabs || r.page != noPage {
			r.left = r.browser.Left()
		}
		r.server.left = r.left
		err = errors.Join(err, r.view(ctx, err, into(&page)))
	}
	section("Result", r.results...)
	if r.inShell() {
		section("Since the last call", since...)
	}
	section("Action", r.actions...)
	section("Open tabs", tabs...)
	b.WriteString(page.String())
	out := &mcp.CallToolResult{StructuredContent: r.structured, IsError: err != nil}
	meta := map[string]any{}
	if b, ok := r.browser.(*browse.Browser); ok && r.server.HTTPURL != "" {
		meta[results.MetaBegun] = b.Downloads()
	}
	if r.form.Value && err == nil {
		meta[results.MetaValue] = r.valueAlone()
	}
	if r.inShell() && r.at != nil {
		meta[results.MetaPage] = r.at
	}
	if len(meta) > 0 {
		out.Meta = mcp.NewMetaFromMap(meta)
	}
	if b.Len() == 0 && len(r.images) == 0 {
		section("Result", "The result is empty.") // a text without text is not one of MCP
	}
	if text := strings.TrimSuffix(b.String(), "\n"); text != "" {
		out.Content = append(out.Content, mcp.NewTextContent(text))
	}
	out.Content = append(out.Content, r.images...)
	return out
}

// valueAlone returns what the result is without what is told of it: its images and data, else its text.
func (r *output) valueAlone() []mcp.Content {
	if len(r.images) > 0 {
		return r.images
	}
	text := strings.Join(r.results, "\n")
	if r.value != nil {
		text = *r.value
	}
	if r.form.JSON && json.Valid([]byte(r.returns)) {
		return []mcp.Content{mcp.NewEmbeddedResource(mcp.TextResourceContents{MIMEType: "application/json",
			Text: r.returns})}
	}
	if text = r.secrets.Mask(text); !utf8.ValidString(text) { // the body of a response in another encoding
		return []mcp.Content{mcp.NewEmbeddedResource(mcp.BlobResourceContents{MIMEType: "text/plain",
			Blob: base64.StdEncoding.EncodeToString([]byte(text))})}
	}
	return []mcp.Content{mcp.NewTextContent(text)}
}

// tabs returns the lines on open tabs, if the result shows them, and records which the call opened.
func (r *reply) tabs(ctx context.Context) []string {
	if r.browser == nil {
		return nil
	}
	var caused browse.Changes
	if r.before != nil {
		caused = r.before.Since()
	}
	var all []browse.TabState
	if r.showTabs || (caused.Opens || r.page >= pageChanges && !r.inShell()) && r.browser.Count() > 1 {
		all = r.browser.Tabs(ctx)
	}
	for i, t := range all {
		if caused.Opens && t.Number > caused.Tabs && !t.Current { // that one the call itself has opened
			r.did("Opened tab %d: browser_tabs selects it", i)
		}
	}
	if r.began != nil {
		for _, url := range r.began.Since().Vanished {
			r.did("Not by this call: the tab of %s was closed, by its page, or as one of more than --tab-limit of "+
				"bmcp allows", address(url))
		}
	}
	for _, name := range caused.Files {
		r.did("Began to download %s", clipped(name, maxTitle))
	}
	if r.showTabs { // they are the result
		r.results = append(r.results, tabLines(all)...)
		r.rows(tabRows(all))
		return nil
	}
	if all == nil {
		return nil
	}
	return tabLines(all)
}

// inShell reports whether the reader calls from a shell.
func (r *output) inShell() bool { return r.form.Command != "" }

// showsSnapshot reports whether the reader gets a snapshot, or what has changed in it: in a shell if it asks for one.
func (r *reply) showsSnapshot() bool {
	return r.page == pageSnapshot || r.page == pageChanges && (!r.inShell() || r.form.Snapshot)
}

// view writes the sections on the browser and the page. Its error is that of a tool
// that is to show a snapshot, and cannot.
func (r *reply) view(ctx context.Context, err error, section func(string, ...string)) error {
	if r.page == noPage {
		return nil
	}
	t, gone := r.browser.Current(ctx)
	if gone != nil || ctx.Err() != nil {
		return nil
	}
	// The snapshot comes first: it tells the title, too, and may take longer than the state
	// waits, as with it our scripts come into a new document.
	var d delta
	var unseen error
	shows := r.showsSnapshot() && err == nil && t.Dialog() == ""
	if shows {
		d, unseen = r.look(ctx, t)
	}
	state := t.Seen()
	if !shows && !r.seen || unseen != nil {
		state = t.State(ctx)
	}
	r.at = &results.PageState{URL: address(state.URL), Title: state.Title, Status: state.Status.Code}
	lines := pageLines(state.URL, state.Title, state.Status, state.Leaving)
	if state.NotLoaded {
		lines = append(lines, "- Not loaded: the browser shows a page of its own, which says why")
	}
	if waits := state.Waits; len(waits) > 0 {
		all := make([]string, min(3, len(waits)))
		for i := range all {
			all[i] = browse.Redacted(waits[i])
		}
		lines = append(lines, "- Not complete: it waits for "+clipped(strings.Join(all, ", "), maxAddress))
	}
	if state.Errors+state.Warnings > 0 {
		lines = append(lines, fmt.Sprintf("- Console: %d errors, %d warnings", state.Errors, state.Warnings))
	}
	chrome, isChrome := t.(*browse.Tab)
	if isChrome {
		lines = append(lines, r.toolsLine(ctx, chrome))
	}
	isNew := r.sayPage(section, t.Document(), lines)
	if isChrome {
		section("Page tools", r.lateAnswers(chrome)...)
		section("Events", errorLines(chrome.NewErrors())...)
	}
	var modals []string
	for _, m := range t.Modals() {
		modals = append(modals, "- "+oneLine(m))
	}
	section("Modal state", modals...)
	switch {
	case !shows:
	case unseen != nil && r.page == pageSnapshot:
		section("Error", errorText(unseen))
		return unseen
	case unseen != nil:
		section("Snapshot", "There is none: "+unseen.Error())
	default:
		r.saySnapshot(section, d, isNew)
	}
	return nil
}

// sayPage writes what is new of what a document is, and reports whether anything is.
func (r *reply) sayPage(section func(string, ...string), document string, lines []string) (isNew bool) {
	told := append([]string{document}, lines...)
	if last := r.server.toldPage; len(last) > 0 && last[0] == document && !r.asksWhole() && !r.opens && !r.form.Value {
		lines = slices.DeleteFunc(lines, func(l string) bool { return slices.Contains(last, l) })
	} else {
		opened := strings.TrimPrefix(lines[0], pageURL) // which is the last time that the address is said
		r.actions = slices.DeleteFunc(r.actions, func(a string) bool { return a == didOpen+opened })
	}
	section("Page", lines...)
	size := 0 // of the text that ends with these lines: the rest of one that is too long is cut off
	for _, text := range slices.Concat(r.results, told) {
		size += 1 + len(text)
	}
	if isCut := r.form.Text > 0 && size > r.form.Text; !r.form.Value && !isCut {
		r.server.toldPage = told
	}
	return len(lines) > 0
}

// asksWhole reports whether the call is one for the whole snapshot.
func (r *reply) asksWhole() bool {
	return r.page == pageSnapshot && !r.onlyNew && r.snapshot == (browse.SnapshotOptions{})
}

// maxSent is how many requests are named.
const maxSent = 3

// sent is a sentence on the requests that the call has caused, which nothing in the page tells of; "": there were none.
func (r *reply) sent() string {
	if r.before == nil {
		return ""
	}
	all := r.before.Sent()
	if len(all) == 0 {
		return ""
	}
	more := ""
	if n := len(all) - maxSent; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	for i := range all {
		all[i] = clipped(all[i], maxTitle)
	}
	return " It has sent " + strings.Join(all[:min(maxSent, len(all))], ", ") + more + "."
}

// unchanged is what is said of a snapshot that has nothing new.
const unchanged = "The snapshot has not changed."

// saySnapshot writes a snapshot, or what is new of it. What is only the new state of elements that were acted on is
// said with the actions. For a call that asks for it, it is the value, too. IsNew is that something else was said of
// the page.
func (r *reply) saySnapshot(section func(string, ...string), d delta, isNew bool) {
	acted := len(r.actions) > 0
	isOf := acted && len(d.lines) > 0 && !slices.ContainsFunc(d.lines, func(c change) bool {
		return r.actionOn(c) < 0
	})
	if r.page == pageSnapshot && r.value == nil {
		text := d.text
		if text == "" && r.onlyNew {
			text = unchanged
		}
		r.value = &text
	}
	switch {
	case d.file != "":
		section("Snapshot", "- [Snapshot]("+d.file+")")
	case r.page == pageSnapshot && !r.onlyNew, d.whole && len(d.lines) == 0:
		section("Snapshot", snapshotSection(d.text, r.snapshot))
	case acted && len(r.on) == 1 && d.focus:
		if !r.proven {
			r.actions[0] += ". In the snapshot only the focus has changed." + r.sent()
		}
	case isOf:
		for _, c := range d.lines {
			r.actions[r.actionOn(c)] += c.state()
		}
	case d.text != "":
		section("Snapshot", fenced("yaml", d.text))
	case isNew || r.proven:
	case acted:
		r.actions[0] += ". " + unchanged + r.sent()
	default:
		section("Snapshot", unchanged)
	}
}

// actionOn returns which action was on the element of a line that has changed; -1: none was.
func (r *reply) actionOn(c change) int {
	i := slices.Index(r.on, browse.Target(parts(c.now).ref))
	if i >= len(r.actions) {
		return -1
	}
	return i
}

// snapshotSection is a snapshot as a result shows it.
func snapshotSection(text string, o browse.SnapshotOptions) string {
	switch {
	case text != "":
		return fenced("yaml", text)
	case o.Interactive:
		return "Nothing in the page is interactive."
	}
	return "The page is empty."
}

// pageURL begins the line on the address of a page.
const pageURL = "- Page URL: "

// pageLines say which page a tab shows.
func pageLines(url, title string, s browse.Status, leaving string) []string {
	lines := []string{pageURL + address(url)}
	if title != "" {
		lines = append(lines, "- Page Title: "+clipped(title, maxTitle))
	}
	if s.Code != 0 && (s.Code < 200 || s.Code > 299) {
		said := fmt.Sprintf("- HTTP status: %d %s", s.Code, clipped(s.Text, maxTitle))
		if s.Code == http.StatusUnauthorized && s.Asks {
			said += ": the address http://NAME:PASSWORD@host/ gives a name and a password"
		}
		lines = append(lines, said)
	}
	if leaving != "" {
		lines = append(lines, "- Leaving for: "+address(leaving)+", whose server has not answered")
	}
	return lines
}

// Bounds of the errors of the console in a result, in messages and in characters of
// one; browser_console_messages has all.
const (
	maxErrors = 3
	maxError  = 200
)

func errorLines(errors []browse.Message) (lines []string) {
	for _, m := range errors[:min(maxErrors, len(errors))] {
		lines = append(lines, "- Console error: "+clipped(m.Text, maxError))
	}
	if more := len(errors) - maxErrors; more > 0 {
		lines = append(lines, fmt.Sprintf("- %d more: browser_console_messages has them", more))
	}
	return lines
}

// maxThrown bounds, in characters, what a script has thrown.
const maxThrown = 2000

// errorText is an error as a result shows it: what a page says in it can be told from what
// we say.
func errorText(err error) string {
	thrown, ok := errors.AsType[*browse.Thrown](err)
	if !ok {
		return err.Error()
	}
	text := []rune(thrown.Text)
	if len(text) > maxThrown {
		text = append(text[:maxThrown], '…')
	}
	return "The script threw\n" + fenced("", string(text))
}

// fenced is text that comes from a page: an agent is to see where it ends.
func fenced(kind, text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + kind + "\n" + text + "\n" + fence
}

// oneLine is a text of a page without what could be read as another section.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Bounds in characters of what a page says of itself in a result.
const (
	maxAddress = 500
	maxTitle   = 200
)

// clipped is a text of a page in one line, of at most so many characters.
func clipped(s string, most int) string {
	said := []rune(oneLine(s))
	if len(said) > most {
		said = append(said[:most], '…')
	}
	return string(said)
}

// address returns an address as a result shows it, without its password.
func address(url string) string { return clipped(browse.Redacted(url), maxAddress) }

// rows gives a reader of JSON the elements of a list, whose text is the result of others.
func (r *output) rows(all any) {
	if raw, err := json.Marshal(all); err == nil && r.form.JSON {
		r.returns = string(raw)
	}
}

// tabRow is a tab in a list for a reader of JSON.
type tabRow struct {
	Index   int    `json:"index"`
	URL     string `json:"url"`
	Title   string `json:"title"`
	Label   string `json:"label,omitempty"`
	Current bool   `json:"current"`
}

func tabRows(tabs []browse.TabState) []tabRow {
	rows := []tabRow{}
	for i, t := range tabs {
		rows = append(rows, tabRow{i, browse.Redacted(t.URL), t.Title, t.Label, t.Current})
	}
	return rows
}

func tabLines(tabs []browse.TabState) (lines []string) {
	for i, t := range tabs {
		current := ""
		if t.Current {
			current = "(current) "
		}
		line := fmt.Sprintf("- %d: %s[%s](%s)", i, current, clipped(t.Title, maxTitle), address(t.URL))
		if t.Label != "" {
			line += " label " + strconv.Quote(t.Label)
		}
		lines = append(lines, line)
	}
	if lines == nil {
		lines = []string{"No open tabs. Navigate to a URL to create one."}
	}
	return lines
}
