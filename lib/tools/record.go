package tools

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"btools/lib/browse"
)

// levels are the levels of the console, the most severe first.
var levels = []string{"error", "warning", "info", "debug"}

func console(ctx context.Context, r *reply, t *browse.Tab, a struct {
	Level, Filename string
	All             bool
}) error {
	most := slices.Index(levels, "info")
	if a.Level != "" {
		most = slices.Index(levels, a.Level)
	}
	var lines []string
	rows := []messageRow{}
	counts := map[string]int{}
	messages := t.Console(a.All)
	for _, m := range messages {
		counts[m.Level]++
		if slices.Index(levels, m.Level) > most {
			continue
		}
		at := ""
		if m.URL != "" {
			at = fmt.Sprintf(" @ %s:%d", m.URL, m.Line+1)
		}
		lines = append(lines, fmt.Sprintf("[%s] %s%s", strings.ToUpper(m.Kind), m.Text, at))
		rows = append(rows, messageRow{m.Level, m.Kind, m.Text, m.URL, m.Line + 1})
	}
	r.rows(rows)
	r.say("Total messages: %d (Errors: %d, Warnings: %d)", len(messages), counts["error"], counts["warning"])
	if len(lines) < len(messages) {
		r.say("Returning %d messages for level %q", len(lines), levels[most])
	}
	if lines == nil {
		return nil
	}
	text := strings.Join(lines, "\n")
	return r.text(ctx, a.Filename, fenced("", text), text)
}

// messageRow is a message of the console in a list for a reader of JSON.
type messageRow struct {
	Level string `json:"level"`
	Type  string `json:"type"`
	Text  string `json:"text"`
	URL   string `json:"url"`
	Line  int    `json:"line"` // from 1
}

// requestRow is a request in a list for a reader of JSON.
type requestRow struct {
	Index      int    `json:"index"` // by which browser_network_request has the rest
	Method     string `json:"method"`
	URL        string `json:"url"`
	Type       string `json:"type"`
	Status     int    `json:"status"`
	Failure    string `json:"failure,omitempty"`
	DurationMS int64  `json:"duration_ms"`
}

// dynamic are the types of requests that scripts make.
var dynamic = []string{"fetch", "xhr", "websocket", "eventsource"}

// isStatic reports whether a request is for a part of the page that is seldom of
// interest, and came.
func isStatic(q browse.Request) bool {
	return q.Failure == "" && q.Status < 400 && !slices.Contains(dynamic, q.Type)
}

func networkRequests(ctx context.Context, r *reply, t *browse.Tab, a struct {
	Static           bool
	Filter, Filename string
}) error {
	filter, err := regexp.Compile(a.Filter)
	if err != nil {
		return fmt.Errorf("filter is not a regular expression: %w", err)
	}
	var lines []string
	rows := []requestRow{}
	hidden := 0
	for i, q := range t.Requests() {
		switch {
		case !filter.MatchString(q.URL):
			continue
		case !a.Static && isStatic(q):
			hidden++
			continue
		}
		lines = append(lines, fmt.Sprintf("%d. [%s] %s => %s", i+1, q.Method, requestAddress(q.URL), outcome(q)))
		rows = append(rows, requestRow{i + 1, q.Method, q.URL, q.Type, q.Status, q.Failure, q.Duration.Milliseconds()})
	}
	r.rows(rows)
	if lines != nil {
		text := strings.Join(lines, "\n")
		if err := r.text(ctx, a.Filename, text, text); err != nil {
			return err
		}
	}
	if hidden > 0 {
		r.say("Requests for static resources that are not shown: %d (static shows them)", hidden)
	} else if lines == nil {
		r.say("There are no requests.")
	}
	return nil
}

// requestAddress returns the address of a request as a list shows it: of one that is its data, the beginning.
func requestAddress(url string) string {
	if strings.HasPrefix(url, "data:") {
		return clipped(url, maxDataAddress)
	}
	return url
}

// maxDataAddress bounds the address of data in a list, in characters.
const maxDataAddress = 60

func outcome(q browse.Request) string {
	switch {
	case q.Failure != "":
		return "[FAILED] " + q.Failure
	case q.Status == 0:
		return "[pending]"
	}
	words := q.StatusText
	if words == "" {
		words = http.StatusText(q.Status)
	}
	return fmt.Sprintf("[%d] %s", q.Status, words)
}

func networkRequest(ctx context.Context, r *reply, t *browse.Tab, a struct {
	Index          float64
	Part, Filename string
}) error {
	all := t.Requests()
	if int(a.Index) > len(all) {
		return fmt.Errorf("there is no request %d: there are %d", int(a.Index), len(all))
	}
	q := all[int(a.Index)-1]
	var text string
	switch a.Part {
	case "request-headers":
		text = headers(q.Sent, "")
	case "request-body":
		text = q.Body
	case "response-headers":
		text = headers(q.Received, "")
	case "response-body":
		body, whole, err := t.ResponseBody(ctx, q)
		if err != nil {
			return err
		}
		if !whole && r.form.Value {
			return fmt.Errorf("the response has not ended: %d bytes of its body have come", len(body))
		}
		if !whole {
			r.say("The response has not ended: this is what has come of it, %d bytes.", len(body))
		}
		if a.Filename == "" && !isText(body) {
			r.say("The body is binary, %d bytes of the type %s.", len(body), q.MimeType)
			r.data(body, q.MimeType, q.URL)
			return nil
		}
		text = string(body)
	default:
		text = fmt.Sprintf("#%d [%s] %s\n\n  General\n", int(a.Index), q.Method, q.URL)
		text += fmt.Sprintf("    status:    %s\n    duration:  %v\n    type:      %s\n    mimeType:  %s\n", outcome(q),
			q.Duration.Round(time.Millisecond), q.Type, q.MimeType)
		text += "\n  Request headers\n" + headers(q.Sent, "    ")
		text += "\n  Response headers\n" + headers(q.Received, "    ")
		if q.Body != "" {
			text += "\n  Request body: part=\"request-body\" shows it"
		}
		text = strings.TrimRight(text, "\n") + "\n\npart=\"response-body\" shows the body of the response."
	}
	return r.text(ctx, a.Filename, fenced("", text), text)
}

func headers(h map[string]string, pad string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(h)) {
		fmt.Fprintf(&b, "%s%s: %s\n", pad, strings.ToLower(name), oneLine(h[name]))
	}
	return b.String()
}
