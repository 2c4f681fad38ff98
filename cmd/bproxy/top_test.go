//go:build linux

package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"btools/lib/cdp"
	"btools/lib/cmdtest"
	"btools/lib/control/api"
	"btools/lib/jsonrpc"
	"btools/lib/live/sources"
	"btools/lib/state"
	"btools/lib/terminal/ptytest"
)

// played is a terminal that a test plays, with what a person sees on it.
type played struct {
	t           *testing.T
	master, tty *os.File

	mu       sync.Mutex
	raw      []byte
	cells    map[[2]int]rune // by row and column
	row, col int
	width    int
	other    bool // the other screen is shown
	hidden   bool // the cursor is
}

// play opens a terminal of a size.
func play(t *testing.T, width, height int) *played {
	t.Helper()
	p := &played{t: t, cells: map[[2]int]rune{}, width: width}
	p.master, p.tty = ptytest.Open(t)
	p.resize(width, height)
	go func() {
		b := make([]byte, 64<<10)
		var rest []byte
		for {
			n, err := p.master.Read(b)
			if err != nil {
				return
			}
			p.mu.Lock()
			p.raw = append(p.raw, b[:n]...)
			rest = p.write(append(rest, b[:n]...))
			p.mu.Unlock()
		}
	}()
	return p
}

func (p *played) resize(width, height int) {
	p.mu.Lock()
	p.width = width
	p.mu.Unlock()
	if err := unix.IoctlSetWinsize(int(p.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(height),
		Col: uint16(width), Xpixel: uint16(width * 8), Ypixel: uint16(height * 16)}); err != nil {
		p.t.Fatal(err)
	}
}

// sequence is a sequence of a terminal: CSI, or one of the graphics protocol.
var sequence = regexp.MustCompile(`^\x1b(?:\[([?0-9;]*)([A-Za-z])|_G[^\x1b]*\x1b\\)`)

// write does what a terminal does, and returns the begin of what has not come whole.
func (p *played) write(b []byte) (rest []byte) {
	for len(b) > 0 {
		if b[0] != '\x1b' {
			if !utf8.FullRune(b) {
				return b
			}
			r, n := utf8.DecodeRune(b)
			b = b[n:]
			switch {
			case r == '\r':
				p.col = 0
			case r == '\n':
				p.row++
			case r >= ' ':
				p.cells[[2]int{p.row, min(p.col, p.width-1)}] = r
				p.col++
			}
			continue
		}
		m := sequence.FindSubmatch(b)
		if m == nil {
			return b
		}
		b = b[len(m[0]):]
		at, _ := strconv.Atoi(string(bytes.Split(m[1], []byte(";"))[0]))
		switch string(m[2]) {
		case "H":
			p.row, p.col = at-1, 0
		case "G":
			p.col = at - 1
		case "J":
			clear(p.cells)
		case "K":
			for c := range p.cells {
				if c[0] == p.row && c[1] >= p.col {
					delete(p.cells, c)
				}
			}
		case "h", "l":
			is := string(m[2]) == "h"
			switch string(m[1]) {
			case "?1049":
				p.other = is
			case "?25":
				p.hidden = !is
			}
		}
	}
	return nil
}

// lines returns what is on the terminal.
func (p *played) lines() (lines []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, r := range p.cells {
		for len(lines) <= c[0] {
			lines = append(lines, "")
		}
		line := []rune(lines[c[0]])
		for len(line) <= c[1] {
			line = append(line, ' ')
		}
		line[c[1]] = r
		lines[c[0]] = string(line)
	}
	return lines
}

// has waits until the lines match an expression.
func (p *played) has(what, expression string) {
	p.t.Helper()
	is := regexp.MustCompile(expression)
	p.until(what, func() bool { return is.MatchString(strings.Join(p.lines(), "\n")) })
}

// until waits until something is so, and else says what is on the terminal.
func (p *played) until(what string, is func() bool) {
	p.t.Helper()
	for end := time.Now().Add(cmdtest.Patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("not in time: %s; on the terminal is\n%s", what, strings.Join(p.lines(), "\n"))
		}
	}
}

// count returns how often what a program has written matches an expression.
func (p *played) count(expression string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(regexp.MustCompile(expression).FindAll(p.raw, -1))
}

func (p *played) press(keys string) {
	p.t.Helper()
	if _, err := p.master.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// modes returns the modes of the terminal.
func (p *played) modes() unix.Termios {
	p.t.Helper()
	m, err := unix.IoctlGetTermios(int(p.tty.Fd()), unix.TCGETS)
	if err != nil {
		p.t.Fatal(err)
	}
	return *m
}

// isAsBefore reports whether a program has given the terminal back.
func (p *played) isAsBefore(before unix.Termios) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, err := unix.IoctlGetTermios(int(p.tty.Fd()), unix.TCGETS)
	return err == nil && *m == before && !p.other && !p.hidden
}

// run starts a program on the terminal.
func (p *played) run(c *exec.Cmd, env ...string) *exec.Cmd {
	p.t.Helper()
	c.Stdin, c.Stdout, c.Stderr = p.tty, p.tty, p.tty
	c.Env = append(c.Env, env...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	cmdtest.Start(p.t, c)
	return c
}

// titled returns a site whose pages have a title.
func titled(t *testing.T, title string) string {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, `<title>%s</title><body style="background: teal">`, title)
	}))
	t.Cleanup(site.Close)
	return site.URL
}

// The sessions of bproxy and bpool are on the terminal, one shows its picture, and one is taken over and given back.
func TestTop(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	pool := w.Shared("_A_INSTANCES=1")
	lease := pool.Lease()
	cmdtest.AskOnce(t, lease.Instance.WSURL, "Target.getTargets", "{}")
	p := w.Proxy("share", "--browser", "chromium")
	agent := openSession(t, p, "shop", titled(t, "Shop \u202e\u001b]0;evil\u0007 \u65e5\u672c"))
	openSession(t, p, "other", "about:blank")
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	term := play(t, 150, 24)
	before := term.modes()
	top := term.run(w.Cmd("bproxy", "top"), "TERM=xterm-kitty", "DISPLAY=", "WAYLAND_DISPLAY=", "SSH_CONNECTION=")
	term.has("the lease", `(?m)^bpool +A-0 +bproxy\.test \(\d+ +about:blank +about:blank +1 `)
	term.has("the session, its title with escapes, and its origin",
		`(?m)^bproxy +shop .*Shop \\u202e.*日本 +…127\.0\.0\.1:\d+ +1 +\d+s`)
	term.press("/sho")
	term.until("one is left", func() bool { return !strings.Contains(strings.Join(term.lines(), "\n"), "A-0") })
	term.press("\r")
	agent.call("Page.reload", nil, nil)
	term.has("the last command", `(?m)^bproxy +shop .* \d+s Page\.reload`)

	term.press("\r")
	term.has("without an answer there is no picture", `shop · .*\n.*has not said that it shows pictures`)
	term.until("the terminal is asked", func() bool { return term.count("\x1b_Gi=31,") > 0 })
	term.press("\x1b_Gi=31;OK\x1b\\")
	const drawn = `\x1b_Ga=T,f=100,i=\d+,p=1,q=2,C=1,[cr]=\d+,m=1;iVBOR`
	term.until("a picture", func() bool { return term.count(drawn) == 1 })
	agent.eval(`document.body.style.background = "red"`)
	term.until("another one", func() bool { return term.count(drawn) == 2 })
	term.press("\x1b")
	term.has("the list", `(?m)^bproxy +shop `)
	if term.count("\x1b_Ga=d,d=I,i=") == 0 {
		t.Error("the picture stays")
	}

	term.press("o")
	term.has("the address of its page", `http://127\.0\.0\.1:\d+/#/shop`)
	term.press("g")
	term.has("it was not taken", `you do not have control of it here`)
	term.press("t")
	term.has("it is taken", `(?m)^bproxy +shop .* you `)
	began := time.Now()
	if _, err := agent.tryEval("1"); err == nil || !strings.Contains(err.Error(), "a person has control") {
		t.Errorf("after %v the agent's script is answered with %v", time.Since(began), err)
	}
	term.press("g")
	term.has("it is given back", `given back`)
	agent.eval("1")
	term.press("/\x1b")
	ask(w, "shop", "Log in\u009b2J")
	term.has("who needs a person is first", `(?m)^3 sessions, 1 need you\s*\nPROGRAM.*\nbproxy +shop +needs you `)
	term.press("\x1b[H")
	term.has("it says why", `\nbproxy ask asks: Log in\\x9b2J`)
	term.press("q")
	if err := top.Wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	term.until("the terminal is as before", func() bool { return term.isAsBefore(before) })
}

// A session is given back some time after the end of top.
func TestTopKilled(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Proxy("share", "--browser", "chromium")
	openSession(t, p, "shop", "about:blank")
	term := play(t, 150, 24)
	top := term.run(w.Cmd("bproxy", "top"))
	term.has("the session", `shop`)
	term.press("t")
	term.has("it is taken", `you have control`)
	top.Process.Kill()
	top.Wait()
	until := func() (ends time.Time) {
		store := state.Open(func(string) string { return w.Dir + "/state/state.json" })
		all, err := sources.All(t.Context(), store, nil)
		if err != nil || len(all) != 1 {
			t.Fatalf("%v: %+v", err, all)
		}
		conn, _, err := all[0].Attach(t.Context(), api.AttachRequest{Who: "ben"})
		if err != nil {
			t.Fatal(err)
		}
		told := make(chan time.Time, 1)
		c := cdp.On(conn, func(e cdp.Event) {
			if e.Method == "Btools.control" {
				at, _ := time.Parse(time.RFC3339, jsonrpc.GetString(e.Params, "until"))
				told <- at
			}
		})
		defer c.Close()
		return <-told
	}
	cmdtest.Until(t, "it is about to be given back", func() bool { return time.Until(until()) < 30*time.Second })
	if until().IsZero() {
		t.Error("the end of top ended control")
	}
}

// The terminal is as before after each signal, and while the program is stopped.
func TestTopSignals(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Proxy("share")
	w.Run("bproxy", "session", "new", "shop").Exits(t, 0, "")
	for _, end := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
		term := play(t, 80, 24)
		before := term.modes()
		top := term.run(w.Cmd("bproxy", "top"))
		term.has("the session", `shop`)
		if term.isAsBefore(before) {
			t.Error("the terminal is not raw")
		}
		term.press("\x1a") // without a shell nothing could continue it
		term.until("it goes on", func() bool { return term.count(`\x1b\[\?1049h`) == 2 && !term.isAsBefore(before) })
		top.Process.Signal(end)
		top.Wait()
		if term.until("the terminal is as before", func() bool { return term.isAsBefore(before) }); (end ==
			unix.SIGQUIT) != (top.ProcessState.ExitCode() != 0) {
			t.Errorf("after %v it exits with %v", end, top.ProcessState)
		}
	}

	term := play(t, 80, 24)
	shell := w.Cmd("bash", "--norc", "-i")
	term.run(shell, "PS1=prompt ")
	term.has("the shell", "prompt")
	term.press("stty -echo; bproxy top\n")
	term.until("it has the terminal", func() bool { return term.other })
	term.has("the session", `shop`)
	// Until the shell asks for the next command, top may read what is typed.
	prompts := term.count("prompt ")
	asks := func() bool { return !term.other && !term.hidden && term.count("prompt ") > prompts }
	term.press("\x1a")
	term.until("it is stopped", asks)
	term.press("stty echo; stty -a | tr -d '\\n'; echo; fg\n")
	term.until("it is back", func() bool { return term.other })
	term.has("the session again", `shop`)
	prompts = term.count("prompt ")
	term.press("q")
	term.until("it has ended", asks)
	term.press("exit\n")
	shell.Wait()
	if term.count(" icanon ") == 0 {
		t.Errorf("while it was stopped the terminal was %q", term.raw)
	}
}

// Small terminals, and those that change, show what there is room for.
func TestTopSizes(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Proxy("share")
	for n := range 4 {
		w.Run("bproxy", "session", "new", fmt.Sprint("shop-", n)).Exits(t, 0, "")
	}
	term := play(t, 20, 5)
	top := term.run(w.Cmd("bproxy", "top"), "NO_COLOR=1")
	term.has("two rows", `^4 sessions *\nSESSION *\nshop-0 *\nshop-1 *\nq quit`)
	term.press("jj\x1b[B")
	term.has("the last ones", `\nshop-2 *\nshop-3 *\n`)
	term.press("\r\x1bk/x\x7f\x1b")
	for _, size := range [][2]int{{1, 1}, {3, 2}, {200, 60}} {
		term.resize(size[0], size[1])
	}
	term.has("all", `PROGRAM +SESSION +HOLDER +CONTROL +TITLE +ORIGIN +TABS IDLE LAST COMMAND *\nbproxy +shop-0`+
		`(.*\n)+bproxy +shop-3`)
	if term.count(`\x1b\[33m`) > 0 {
		t.Error("there are colors")
	}
	term.press("q")
	if err := top.Wait(); err != nil {
		t.Error(err)
	}
}

// Without a terminal there is a line of JSON a second, until nobody reads it.
func TestTopLines(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Proxy("share", "--browser", "chromium")
	agent := openSession(t, p, "shop", titled(t, "Shop"))
	agent.until("it is there", `document.title === "Shop"`)
	ask(w, "shop", "Log in")
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	cmdtest.Until(t, "it is asked", func() bool {
		return strings.Contains(w.Run("bproxy", "session", "list").Out, `"ask":`)
	})
	openSession(t, p, "a-first", "about:blank")
	c := w.Cmd("bproxy", "top")
	out := json.NewDecoder(cmdtest.StartRead(t, c))
	type line struct {
		V        int
		At       time.Time
		Sessions []struct {
			Key, Program, Kind, Title, URL string
			TabCount                       int  `json:"tab_count"`
			IdleSeconds                    *int `json:"idle_seconds"`
			Ask                            struct{ Instructions string }
			Command                        struct{ Method string }
		}
	}
	var first, second line
	if err := out.Decode(&first); err != nil || len(first.Sessions) != 2 {
		t.Fatalf("%v: %+v", err, first)
	}
	if s := first.Sessions[0]; first.V != 1 || s.Key != "shop" || s.Program != "bproxy" || s.Kind != "session" ||
		s.Title != "Shop" || !strings.HasPrefix(s.URL, "http://127.0.0.1:") || s.TabCount != 1 ||
		s.IdleSeconds == nil || s.Ask.Instructions != "Log in" {
		t.Errorf("the first is %+v", s)
	}
	agent.call("Page.reload", nil, nil)
	for second.At.IsZero() || second.Sessions[0].Command.Method == "" {
		if err := out.Decode(&second); err != nil {
			t.Fatal(err)
		}
	}
	if d := second.At.Sub(first.At); d < time.Second/2 || second.Sessions[0].Command.Method != "Page.reload" {
		t.Errorf("%v later there is %+v", d, second)
	}
	w.Run("sh", "-c", "bproxy top | head -n 1 | wc -l").Exits(t, 0, "")
}
