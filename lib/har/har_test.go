package har

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// traceOf returns the lines of a trace, each given as CONNECTION SESSION
// MESSAGE, where SESSION is that of CDP, or - for none, and a MESSAGE to the
// browser begins with >.
func traceOf(lines ...string) string {
	var b strings.Builder
	for _, l := range lines {
		parts := strings.SplitN(l, " ", 3)
		message, direction := parts[2], "to_client"
		if strings.HasPrefix(message, ">") {
			message, direction = message[1:], "to_browser"
		}
		if parts[1] != "-" {
			message = fmt.Sprintf(`%s,"sessionId":%q}`, strings.TrimSuffix(message, "}"), parts[1])
		}
		fmt.Fprintf(&b, `{"time":"2026-01-02T03:04:05.678Z","connection":%s,"direction":%q,"message":%s}`+"\n",
			parts[0], direction, message)
	}
	return b.String()
}

func event(name, params string) string {
	return fmt.Sprintf(`{"method":"Network.%s","params":%s}`, name, params)
}

func sent(id string, at float64, url, more string) string {
	return event("requestWillBeSent", fmt.Sprintf(
		`{"requestId":%q,"timestamp":%v,"wallTime":%v,"request":{"url":%q,"method":"GET","headers":{"A":"b"}}%s}`,
		id, at, 1e9+at, url, more))
}

func received(id string, at float64, more string) string {
	return event("responseReceived", fmt.Sprintf(
		`{"requestId":%q,"timestamp":%v,"response":{"status":200,"statusText":"OK","headers":{},"mimeType":"text/x"%s}`,
		id, at, more))
}

func finished(id string, at float64) string {
	return event("loadingFinished", fmt.Sprintf(`{"requestId":%q,"timestamp":%v,"encodedDataLength":10}`, id, at))
}

func traceIn(text string) Trace { return Trace{strings.NewReader(text), int64(len(text))} }

func convert(t testing.TB, trace string) ([]entry, []page, Summary) {
	t.Helper()
	var out bytes.Buffer
	sum, err := Convert([]Trace{traceIn(trace)}, Options{By: Creator{"test", "1"}, Logins: true}, &out)
	if err != nil {
		t.Fatal(err)
	}
	var a struct {
		Log struct {
			Entries []json.RawMessage
			Pages   []json.RawMessage
		}
	}
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		t.Fatalf("%v\n%s", err, out.Bytes())
	}
	var entries []entry
	for _, raw := range a.Log.Entries {
		var e struct { // whose times are written otherwise than they are read
			Time     float64
			Request  message
			Response struct {
				Status      int
				RedirectURL string
				Headers     []pair
				Content     content
				Error       string `json:"_error"`
			}
			Comment string
			Timings phases
		}
		if err := json.Unmarshal(raw, &e); err != nil {
			t.Fatalf("%v\n%s", err, raw)
		}
		x := entry{Time: ms(e.Time), Request: e.Request, Comment: e.Comment, Timings: e.Timings}
		x.Response = response{Status: e.Response.Status, RedirectURL: e.Response.RedirectURL,
			Headers: e.Response.Headers, Content: e.Response.Content, Error: e.Response.Error}
		entries = append(entries, x)
	}
	return entries, make([]page, len(a.Log.Pages)), sum
}

// Several traces, each of which counts its connections, become one archive: with each
// request once, and with those of some pages alone if these are asked for.
func TestMerge(t *testing.T) {
	t.Parallel()
	document := func(id string, at float64, url string) string {
		return sent(id, at, url, fmt.Sprintf(`,"loaderId":%q,"frameId":"F%[1]s","type":"Document"`, id))
	}
	title := func(id, title, url string) string {
		return fmt.Sprintf(`{"method":"Target.targetInfoChanged","params":{"targetInfo":{"targetId":"F%s","title":%q,`+
			`"url":%q}}}`, id, title, url)
	}
	of := func(id string) string { return fmt.Sprintf(`,"loaderId":%q,"frameId":"F%[1]s"`, id) }
	second := traceOf("1 - "+document("B", 5, "http://b/"), "1 - "+sent("7", 6, "http://b/seven", of("B")),
		"1 - "+finished("7", 7), "1 - "+title("B", "Second page", "http://b/"))
	first := traceOf("1 - "+document("A", 1, "http://a/"), "1 - "+finished("A", 2),
		"1 - "+sent("7", 3, "http://a/seven", of("A")), "2 - "+sent("8", 4, "http://a/eight", ""))
	for want, page := range map[string]string{
		"http://a/ http://a/eight http://a/seven http://b/ http://b/seven": "",
		"http://b/ http://b/seven":  "second PAGE",
		"http://a/ http://a/seven":  "HTTP://A",
		"http://a/ http://a/seven ": "fa",
	} {
		var out bytes.Buffer
		sum, err := Convert([]Trace{traceIn(second), traceIn(first), traceIn(first)}, Options{Page: page}, &out)
		if err != nil {
			t.Fatal(err)
		}
		var a struct {
			Log struct {
				Entries []struct{ Request struct{ URL string } }
				Pages   []struct{ Title string }
			}
		}
		if err := json.Unmarshal(out.Bytes(), &a); err != nil {
			t.Fatalf("%v\n%s", err, out.Bytes())
		}
		var got []string
		for _, e := range a.Log.Entries {
			got = append(got, e.Request.URL)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != strings.TrimSpace(want) || sum.Entries != len(got) ||
			sum.Pages != len(a.Log.Pages) {
			t.Errorf("the page %q: %v, %+v; want %s", page, got, sum, want)
		}
		if page == "" && (len(a.Log.Pages) != 2 || a.Log.Pages[0].Title != "http://a/" ||
			a.Log.Pages[1].Title != "Second page") {
			t.Errorf("the pages are %v, want the older one first", a.Log.Pages)
		}
	}
	var out bytes.Buffer
	_, err := Convert([]Trace{traceIn(second), traceIn(first)}, Options{Page: "none"}, &out)
	if none := (*NoPageError)(nil); !errors.As(err, &none) || len(none.Pages) != 2 || out.Len() > 0 {
		t.Errorf("no such page: %v, %s", err, out.Bytes())
	}
}

func urls(entries []entry) (all []string) {
	for _, e := range entries {
		all = append(all, e.Request.URL)
	}
	return all
}

// The headers of the network come in any order, and belong to the redirects
// that have them.
func TestExtraInfo(t *testing.T) {
	t.Parallel()
	request := func(n int) string {
		return event("requestWillBeSentExtraInfo", fmt.Sprintf(`{"requestId":"1","headers":{"N":"%d"}}`, n))
	}
	answer := func(n int) string {
		return event("responseReceivedExtraInfo", fmt.Sprintf(
			`{"requestId":"1","statusCode":%d,"headers":{"Set-Cookie":"a=1\nb=%d"}}`, 300+n, n))
	}
	first, second := sent("1", 1, "http://x/1", ""), sent("1", 2, "http://x/2",
		`,"redirectHasExtraInfo":true,"redirectResponse":{"status":307,"headers":{"location":"/2"}}`)
	third := sent("1", 3, "http://x/3", `,"redirectHasExtraInfo":false,"redirectResponse":{"status":307,"headers":{}}`)
	last, end := received("1", 4, `},"hasExtraInfo":true`), finished("1", 5)
	for _, order := range [][]string{
		{first, request(1), answer(1), second, third, request(2), answer(2), last, end},
		{request(1), first, second, answer(1), third, last, end, answer(2), request(2)},
		{request(1), answer(1), request(2), answer(2), first, second, third, last, end},
		{first, second, third, last, end, request(1), request(2), answer(1), answer(2)},
	} {
		var lines []string
		for _, m := range order {
			lines = append(lines, "1 - "+m, "1 S "+m, "2 - "+m) // another CDP session, and another connection
		}
		entries, _, _ := convert(t, traceOf(lines...))
		if got := urls(entries); !slices.Equal(got, []string{"http://x/1", "http://x/2", "http://x/3"}) {
			t.Fatal(got)
		}
		for i, want := range []string{"1", "", "2"} {
			e := entries[i]
			if got := headers(e.Request.Headers).get("N"); got != want {
				t.Errorf("request %d has the headers %v", i, e.Request.Headers)
			}
			if want != "" && (len(e.Response.Headers) != 2 ||
				e.Response.Headers[1].Value != "b="+want) {
				t.Errorf("response %d: %+v", i, e.Response)
			}
		}
	}
}

// Of two connections that report a request the second is the first to end it: the
// headers of a redirect that the first has written stay those of the redirect.
func TestRedirectOfTwoConnections(t *testing.T) {
	t.Parallel()
	extra := func(status int) []string {
		headers := fmt.Sprintf(`"headers":{"N":"%d"}}`, status)
		return []string{event("requestWillBeSentExtraInfo", `{"requestId":"1",`+headers),
			event("responseReceivedExtraInfo", fmt.Sprintf(`{"requestId":"1","statusCode":%d,`, status)+headers)}
	}
	begin := append(extra(302), sent("1", 1, "http://x/1", ""), sent("1", 2, "http://x/2",
		`,"redirectHasExtraInfo":true,"redirectResponse":{"status":302,"headers":{"location":"/2"}}`))
	end := append(extra(200), received("1", 4, `},"hasExtraInfo":true`), finished("1", 5))
	var lines []string
	for _, part := range []struct {
		connection string
		messages   []string
	}{{"1", begin}, {"2", begin}, {"2", end}, {"1", end}} {
		for _, m := range part.messages {
			lines = append(lines, part.connection+" - "+m)
		}
	}
	entries, _, _ := convert(t, traceOf(lines...))
	if got := urls(entries); !slices.Equal(got, []string{"http://x/1", "http://x/2"}) {
		t.Fatal(got)
	}
	for i, want := range []string{"302", "200"} {
		e := entries[i]
		asked, answered := headers(e.Request.Headers).get("N"), headers(e.Response.Headers).get("N")
		if asked != want || answered != want || strconv.Itoa(e.Response.Status) != want {
			t.Errorf("%s: headers of %s and %s, status %d, want %s", e.Request.URL, asked, answered,
				e.Response.Status, want)
		}
	}
}

// Each session has its own times of a WebSocket. It is one entry all the same; its
// identifier is another WebSocket's in another run of the browser.
func TestWebSocketOfTwoConnections(t *testing.T) {
	t.Parallel()
	socket := func(connection string, at float64) (lines []string) {
		for _, m := range []string{
			event("webSocketCreated", `{"requestId":"1","url":"ws://x"}`),
			event("webSocketWillSendHandshakeRequest", fmt.Sprintf(`{"requestId":"1","timestamp":%v}`, at)),
			event("webSocketClosed", fmt.Sprintf(`{"requestId":"1","timestamp":%v}`, at+1)),
		} {
			lines = append(lines, connection+" - "+m)
		}
		return lines
	}
	trace := traceOf(slices.Concat(socket("1", 19.9999), socket("2", 20.0001), socket("3", 100))...)
	entries, _, _ := convert(t, trace)
	if got := urls(entries); !slices.Equal(got, []string{"ws://x", "ws://x"}) {
		t.Errorf("there are %v, want one for each run", got)
	}
}

func TestTimings(t *testing.T) {
	t.Parallel()
	timing := `,"timing":{"requestTime":1.010,"dnsStart":5,"dnsEnd":7,"connectStart":7,"connectEnd":27,"sslStart":12,` +
		`"sslEnd":26,"sendStart":28,"sendEnd":29,"receiveHeadersEnd":59}}`
	entries, _, _ := convert(t, traceOf("1 - "+sent("1", 1, "https://x/", ""), "1 - "+received("1", 1.07, timing),
		"1 - "+finished("1", 1.1)))
	want := phases{Blocked: 15, DNS: 2, Connect: 20, SSL: 14, Send: 1, Wait: 30, Receive: 31}
	near := func(a, b ms) bool { return a-b < 0.01 && b-a < 0.01 }
	got := entries[0].Timings
	if !near(got.Blocked, want.Blocked) || got.DNS != want.DNS || got.Connect != want.Connect || got.SSL != want.SSL ||
		got.Send != want.Send || got.Wait != want.Wait || !near(got.Receive, want.Receive) ||
		!near(entries[0].Time, 99) {
		t.Errorf("%+v, %v", got, entries[0].Time)
	}
}

// A trace may be of several runs, in which identifiers are used again, and may
// end anywhere.
func TestSeveralRuns(t *testing.T) {
	t.Parallel()
	body := func(id int, text string) []string {
		return []string{fmt.Sprintf(`1 P >{"id":%d,"method":"Network.getResponseBody","params":{"requestId":"1"}}`, id),
			fmt.Sprintf(`1 P {"id":%d,"result":{"body":%q,"base64Encoded":false}}`, id, text)}
	}
	run := func(at float64, text string) []string {
		return slices.Concat([]string{"1 P " + sent("1", at, "http://x/"+text, ""), "1 P " + received("1", at+1, "}"),
			"1 P " + finished("1", at+2)}, body(7, text))
	}
	opened := `{"connection":1,"opened":"/devtools/browser"}` + "\n"
	underWay := "1 P " + sent("2", 5, "http://x/under-way", "")
	trace := opened + traceOf(append(run(1, "one"), underWay)...) +
		opened + traceOf(run(1.5, "two")...) + traceOf("1 P "+sent("9", 9, "http://x/cut", ""))
	entries, _, sum := convert(t, trace+`{"time":"2026`)
	if got := urls(entries); !slices.Equal(got, []string{"http://x/one", "http://x/under-way", "http://x/two",
		"http://x/cut"}) || sum.Damaged != 1 || sum.Bodies != 2 {
		t.Errorf("%v, %+v", got, sum)
	}
	if entries[1].Comment == "" || string(entries[0].Response.Content.Text) != `"one"` ||
		string(entries[2].Response.Content.Text) != `"two"` {
		t.Errorf("%+v", entries)
	}
}

// endless is a long trace that is not in memory: lines that differ in 8 digits.
type endless struct{ before, after string }

func (e endless) ReadAt(p []byte, off int64) (n int, err error) {
	length := int64(len(e.before) + 8 + len(e.after))
	for n < len(p) {
		at := off + int64(n)
		l := e.before + fmt.Sprintf("%08d", at/length) + e.after
		n += copy(p[n:], l[at%length:])
	}
	return n, nil
}

// The memory does not grow with the trace, even if no request ever ends.
func TestBoundedMemory(t *testing.T) {
	line := traceOf("1 - " + sent("NUMBER", 1, "http://x/"+strings.Repeat("x", 50_000), ""))
	before, after, _ := strings.Cut(line, "NUMBER")
	e := endless{before, after}
	const lines = 300 // 15 MB
	var most uint64
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	writes := 0
	out := writerFunc(func(p []byte) (int, error) {
		if writes++; writes%100 > 0 { // to look stops the program
			return len(p), nil
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapInuse)
		return len(p), nil
	})
	sum, err := Convert([]Trace{{e, lines * int64(len(before)+8+len(after))}}, Options{}, out)
	if err != nil || sum.Entries != lines {
		t.Fatal(sum, err)
	}
	if most > 90<<20 { // 66 MiB, as for a trace of twice the size
		t.Errorf("it took %d MiB", most>>20)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Whatever a trace contains, the result is JSON, and lines are counted.
func FuzzConvert(f *testing.F) {
	f.Add([]byte(traceOf("1 - "+sent("1", 1, "http://x/?a=b", `,"type":"Document","loaderId":"1","frameId":"F"`),
		"1 - "+received("1", 2, "}"), "1 - "+finished("1", 3),
		`1 - >{"id":1,"method":"Network.getResponseBody","params":{"requestId":"1"}}`,
		`1 - {"id":1,"result":{"body":"x"}}`)))
	f.Add([]byte(traceOf(`1 - `+event("webSocketCreated", `{"requestId":"1","url":"ws://x"}`),
		`1 - `+event("webSocketFrameSent", `{"requestId":"1","response":{"payloadData":"x"}}`),
		`1 - `+event("webSocketClosed", `{"requestId":"1","timestamp":1e300}`))))
	f.Add([]byte(traceOf("1 - "+event("responseReceivedExtraInfo", `{"requestId":"1","headers":{"a":"b"}}`),
		`1 - {"method":"Target.attachedToTarget","params":{"sessionId":"","targetInfo":{"targetId":"x",`+
			`"type":"page"}}}`,
		"1 - "+event("loadingFailed", `{"requestId":"1"}`))))
	f.Fuzz(func(t *testing.T, trace []byte) {
		var out bytes.Buffer
		_, err := Convert([]Trace{traceIn(string(trace))}, Options{}, &out)
		if err == ErrNoNetwork {
			if out.Len() > 0 {
				t.Errorf("it has written %s", out.Bytes())
			}
			return
		}
		if err != nil || !json.Valid(out.Bytes()) {
			t.Fatalf("%v\n%s", err, out.Bytes())
		}
	})
}

// An archive has no cookie, no header that authorizes and no password, unless it is asked for.
func TestWithoutLogins(t *testing.T) {
	t.Parallel()
	post := func(id, kind, body string) string {
		text, _ := json.Marshal(body)
		return "1 - " + event("requestWillBeSent", fmt.Sprintf(`{"requestId":%q,"timestamp":1,"wallTime":1,"request":{`+
			`"url":"http://x/?a=b&new%%5BPassword%%5D=hid-1&pass=hid-2","method":"POST","hasPostData":true,`+
			`"postData":%s,"headers":{"Content-Type":%q,"authorization":"Basic hid","COOKIE":"c=hid",`+
			`"Proxy-Authorization":"hid","Referer":"http://x/?pwd=hid"}},`+
			`"initiator":{"type":"script","url":"http://x/?pwd=hid"}}`, id, text, kind))
	}
	const parts = "--B\r\nContent-Disposition: form-data; name=\"user\"\r\n\r\nanna\r\n--B\r\n" +
		"Content-Disposition: form-data; name=\"passwd\"\r\n\r\n%s\r\n--B--\r\n"
	text := traceOf(
		"1 - "+event("requestWillBeSent", `{"requestId":"P","loaderId":"P","frameId":"F","type":"Document",`+
			`"timestamp":1,"wallTime":1,"request":{"url":"http://x/page?pwd=hid","method":"GET","headers":{}}}`),
		"1 - "+finished("P", 2),
		post("1", "application/x-www-form-urlencoded", "user=anna&user_password=h%69d&x=hi+you"),
		"1 - "+event("requestWillBeSentExtraInfo", `{"requestId":"1","headers":{"Cookie":"c=hid",`+
			`"Content-Type":"application/x-www-form-urlencoded"},"associatedCookies":[`+
			`{"blockedReasons":[],"cookie":{"name":"c","value":"hid","domain":"x","path":"/"}}]}`),
		"1 - "+received("1", 2, `},"hasExtraInfo":true`),
		"1 - "+event("responseReceivedExtraInfo", `{"requestId":"1","statusCode":302,`+
			`"headers":{"set-cookie":"c=hid; Path=/","Location":"/?pwd=hid"}}`), "1 - "+finished("1", 3),
		post("2", "application/json; charset=utf-8",
			`{"user":"anna","login":[{"pwd":"hid","n":1.50}],"Passphrase":["hid"]}`),
		"1 - "+finished("2", 3),
		post("3", "multipart/form-data; boundary=B", fmt.Sprintf(parts, "hid")), "1 - "+finished("3", 3),
		post("4", "", "user=anna&pass=hid"), "1 - "+finished("4", 3))
	var with, without bytes.Buffer
	for out, o := range map[*bytes.Buffer]Options{&with: {Logins: true}, &without: {}} {
		if sum, err := Convert([]Trace{traceIn(text)}, o, out); err != nil || sum.Entries != 5 {
			t.Fatal(sum, err)
		}
	}
	got := without.String()
	if strings.Contains(got, "hid") || strings.Contains(got, "h%69d") {
		t.Errorf("it has what it leaves out: %s", got)
	}
	many, _ := json.Marshal(fmt.Sprintf(parts, "***"))
	for _, want := range []string{`"text":"user=anna&user_password=***&x=hi+you"`,
		`{"name":"user_password","value":"***"}`,
		`{\"user\":\"anna\",\"login\":[{\"pwd\":\"***\",\"n\":1.50}],\"Passphrase\":\"***\"}`, string(many),
		`"text":"user=anna&pass=***"`, `{"name":"c","value":"***","path":"/","domain":"x"`,
		`?a=b&new%5BPassword%5D=***&pass=***"`,
		`{"name":"Location","value":"/?pwd=***"}`, `"title":"http://x/page?pwd=***"`} {
		if !strings.Contains(got, want) {
			t.Errorf("it has no %s: %s", want, got)
		}
	}
	if n := strings.Count(with.String(), "hid"); n < 20 {
		t.Errorf("with logins it has %d of them: %s", n, with.String())
	}
}
