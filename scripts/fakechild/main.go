// Fakechild is a child MCP server that misbehaves on demand. FAKE says how it
// starts; its tools do the rest.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

type message struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
}

var (
	mu      sync.Mutex
	answers = map[string]chan message{}
	tools   = []string{"echo", "sleep", "crash", "silent", "progress", "ask", "big", "error",
		"change", "env", "flood", "deaf", "fork", "told", "updated", "log", "askprogress", "where",
		"getenv", "colors"}
	asked   int
	told    []string // of what lasts
	read    []string // calls, in the order in which they are read
	schemas []string // of tools that are odd
)

func write(line string) {
	mu.Lock()
	defer mu.Unlock()
	os.Stdout.WriteString(line + "\n")
}

func result(id json.RawMessage, result string) {
	write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result))
}

func text(id json.RawMessage, s string) {
	q, _ := json.Marshal(s)
	result(id, fmt.Sprintf(`{"content":[{"type":"text","text":%s}]}`, q))
}

func main() {
	switch os.Getenv("FAKE") {
	case "crash":
		fmt.Fprintln(os.Stderr, "no license found")
		os.Exit(3)
	case "silent":
		time.Sleep(time.Hour)
	case "slow":
		time.Sleep(2 * time.Second)
	case "parent":
		exec.Command("sleep", "1000").Start()
	case "stubborn":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		exec.Command("sleep", "1000").Start()
		defer time.Sleep(time.Hour)
	case "odd":
		schemas = []string{`"text"`, "null", "[]", "{}", `{"properties":5}`, `{"type":"object","properties":null}`,
			`{"type":"object","properties":{"n":{"type":"string","x-mcp-header":"a ` +
				`b"},"m":{"type":"object","x-mcp-header":5}}}`}
	case "many":
		for i := range 1000 {
			tools = append(tools, fmt.Sprintf("tool_%d", i))
		}
	}
	if names := os.Getenv("FAKE_TOOLS"); names != "" {
		tools = strings.Split(names, ",")
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(line, &m) != nil {
			continue
		}
		if m.Method == "" {
			mu.Lock()
			c := answers[string(m.ID)]
			mu.Unlock()
			if c != nil {
				c <- m
			}
			continue
		}
		if m.Method == "tools/call" && strings.Contains(string(m.Params), `"name":"deaf"`) {
			time.Sleep(time.Hour) // it reads no more
		}
		if m.Method == "tools/call" && strings.Contains(string(m.Params), `"name":"shut"`) {
			os.Stdin.Close()
			handle(m)
			time.Sleep(time.Hour) // nor can it
		}
		if m.Method == "tools/call" {
			mu.Lock()
			read = append(read, string(m.Params))
			mu.Unlock()
		}
		go handle(m)
	}
}

func handle(m message) {
	switch m.Method {
	case "initialize":
		if os.Getenv("FAKE") == "bycaps" && strings.Contains(string(m.Params), `"elicitation"`) {
			mu.Lock()
			tools = append(tools, "needs_elicitation")
			mu.Unlock()
		}
		result(m.ID,
			`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},`+
				`"resources":{"subscribe":true},`+
				`"prompts":{},"logging":{}},"serverInfo":{"name":"fake","version":"1"},"instructions":"Fake it."}`)
	case "tools/list":
		if os.Getenv("FAKE") == "list" {
			fmt.Fprintln(os.Stderr, "cannot list")
			os.Exit(4)
		}
		mu.Lock()
		var p struct{ Cursor string }
		json.Unmarshal(m.Params, &p)
		at := 0
		fmt.Sscan(p.Cursor, &at)
		end, next := min(at+300, len(tools)), ""
		if end < len(tools) {
			next = fmt.Sprintf(`,"nextCursor":"%d"`, end)
		}
		var list []string
		for _, n := range tools[at:end] {
			if len(schemas) > 0 {
				list = append(list, fmt.Sprintf(`{"name":"odd_%d","inputSchema":%s}`, len(schemas), schemas[0]))
				schemas = schemas[1:]
			}
			list = append(list, fmt.Sprintf(`{"name":%q,"description":"does <%s>","inputSchema":{`+
				`"$schema":"http://json-schema.org/draft-07/schema#","type":"object",`+
				`"properties":{"n":{"type":"number","x-vendor":1}},"additionalProperties":false},`+
				`"x-unknown":{"kept":1.0}}`, n, n))
		}
		mu.Unlock()
		result(m.ID, `{"tools":[`+strings.Join(list, ",")+`]`+next+`}`)
	case "resources/list":
		result(m.ID, `{"resources":[{"uri":"fake://a","name":"a"}]}`)
	case "resources/read":
		if !strings.Contains(string(m.Params), "fake://a") ||
			strings.Contains(string(m.Params), "io.modelcontextprotocol") {
			write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32002,"message":"no such resource in %s"}}`,
				m.ID, strings.ReplaceAll(string(m.Params), `"`, "'")))
			return
		}
		result(m.ID, `{"contents":[{"uri":"fake://a","text":"the text"}]}`)
	case "prompts/list":
		result(m.ID, `{"prompts":[{"name":"greet"}]}`)
	case "prompts/get":
		result(m.ID, `{"messages":[{"role":"user","content":{"type":"text","text":"hello"}}]}`)
	case "resources/subscribe", "resources/unsubscribe":
		tell(m)
	case "logging/setLevel":
		tell(m)
		write(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"level set"}}`)
	case "tools/call":
		call(m)
	default:
		if m.ID != nil {
			write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no %s"}}`, m.ID, m.Method))
		} else if m.Method == "notifications/cancelled" {
			fmt.Fprintf(os.Stderr, "cancelled %s\n", m.Params)
		}
	}
}

func tell(m message) {
	mu.Lock()
	told = append(told, m.Method+string(m.Params))
	mu.Unlock()
	result(m.ID, "{}")
}

func call(m message) {
	var p struct {
		Name string
		Args struct {
			Ms     int
			N      int
			Open   int // of the questions: are not answered
			Method string
			Params json.RawMessage
			Names  []string
			Result json.RawMessage
		} `json:"arguments"`
		Meta struct {
			Token json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	json.Unmarshal(m.Params, &p)
	switch p.Name {
	case "echo": // every byte as it came, and some that nobody knows
		result(m.ID, `{"content":[{"type":"text","text":"`+p.Name+
			`"},{"type":"x-unknown","v":1e300}],"structuredContent":{"params":`+string(m.Params)+
			`},"precise":12345678901234567890.10,"_meta":{"a":1}}`)
	case "sleep":
		time.Sleep(time.Duration(p.Args.Ms) * time.Millisecond)
		text(m.ID, "slept")
	case "crash":
		fmt.Fprintln(os.Stderr, "out of luck")
		os.Exit(7)
	case "silent":
	case "progress":
		for i := range p.Args.N {
			write(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,`+
				`"progress":%d}}`, p.Meta.Token, i))
		}
		text(m.ID, "done")
	case "questions": // many, and how many of them are refused in time
		c := make(chan message, p.Args.N)
		for i := range p.Args.N {
			id := fmt.Sprintf(`"q-%s-%d"`, m.ID, i)
			mu.Lock()
			answers[id] = c
			mu.Unlock()
			write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"message":"question %d"}}`, id,
				p.Args.Method, i))
			time.Sleep(time.Duration(p.Args.Ms) * time.Millisecond)
		}
		refused := 0
		for range p.Args.N - p.Args.Open {
			if a := <-c; a.Error != nil {
				refused++
			}
		}
		text(m.ID, fmt.Sprint(refused))
	case "shut":
		text(m.ID, "shut")
	case "ask", "askprogress":
		time.Sleep(time.Duration(p.Args.Ms) * time.Millisecond)
		mu.Lock()
		asked++
		id := fmt.Sprintf(`"ask-%d"`, asked)
		c := make(chan message, 1)
		answers[id] = c
		mu.Unlock()
		params := string(p.Args.Params)
		if params == "" {
			params = "{}"
		}
		write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, p.Args.Method, params))
		a := <-c
		b, _ := json.Marshal(a)
		if p.Name == "askprogress" {
			write(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,`+
				`"progress":1}}`, p.Meta.Token))
		}
		text(m.ID, string(b))
	case "big":
		text(m.ID, strings.Repeat("x", p.Args.N))
	case "order":
		mu.Lock()
		all := strings.Join(read, "\n")
		mu.Unlock()
		text(m.ID, all)
	case "give":
		result(m.ID, string(p.Args.Result))
	case "error":
		write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32042,"message":"refused","data":{"why":[1,2]}}}`,
			m.ID))
	case "change":
		mu.Lock()
		tools = append(tools, p.Args.Names...)
		mu.Unlock()
		for range 100 {
			write(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		}
		text(m.ID, "changed")
	case "env":
		text(m.ID, os.Getenv("BTOOLS_CDP_URL")+" "+strings.Join(os.Args[1:], " "))
	case "colors":
		fmt.Fprintln(os.Stderr, "\x1b[2Jred\x1b]0;title\a")
		os.Exit(7)
	case "getenv":
		var values []string
		for _, name := range p.Args.Names {
			values = append(values, os.Getenv(name))
		}
		text(m.ID, strings.Join(values, " "))
	case "where":
		dir, _ := os.Getwd()
		text(m.ID, dir)
	case "flood":
		for range p.Args.N {
			fmt.Fprintln(os.Stderr, strings.Repeat("noise ", 100))
		}
		text(m.ID, "dry")
	case "told":
		mu.Lock()
		all := strings.Join(told, " ")
		mu.Unlock()
		text(m.ID, all)
	case "updated":
		write(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"fake://a"}}`)
		text(m.ID, "updated")
	case "log":
		write(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug","data":"detail"}}`)
		write(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"trouble"}}`)
		text(m.ID, "logged")
	case "fork":
		c := exec.Command("setsid", "sleep", "1000")
		c.Start()
		text(m.ID, fmt.Sprint(c.Process.Pid))
	default:
		text(m.ID, p.Name)
	}
}
