//go:build unix

// Fakebrowser plays, for the tests, what a real browser can't be made to do.
// FAKE says what: see play.
package main

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"btools/lib/websocket"
)

func main() {
	port := "" // it has none
	for _, a := range os.Args[1:] {
		if p, ok := strings.CutPrefix(a, "--remote-debugging-port="); ok {
			port = p
		}
	}
	play(os.Getenv("FAKE"), port)
}

// answer answers the commands on the pipe, until its end: it has a version, and no
// sessions.
func answer() {
	out := os.NewFile(4, "pipe")
	for in := bufio.NewReader(os.NewFile(3, "pipe")); ; {
		m, err := in.ReadBytes(0)
		if err != nil {
			return
		}
		var command struct {
			ID     int
			Method string
		}
		json.Unmarshal(m[:len(m)-1], &command)
		result := `"result":{}`
		if strings.HasPrefix(command.Method, "Target.") {
			result = `"error":{"code":-32601,"message":"a fake browser has no targets"}`
		}
		fmt.Fprintf(out, "{\"id\":%d,%s}\x00", command.ID, result)
	}
}

// note appends a line to the file that FAKE_LOG names.
func note(line string) {
	f, err := os.OpenFile(os.Getenv("FAKE_LOG"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(f, line)
	f.Close()
}

// forever does not return. It sleeps: a program whose goroutines all wait for
// each other is ended by Go.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

func play(what, port string) {
	switch what {
	case "exit": // at once, with a reason
		fmt.Fprintln(os.Stderr, "fake: I would rather not")
		os.Exit(3)
	case "hang": // never announces anything
		forever()
	case "slow": // to start
		time.Sleep(time.Second)
	case "nodisplay":
		fmt.Fprintln(os.Stderr, "Missing X server or $DISPLAY")
		os.Exit(1)
	case "noserver": // as Chrome does when it can listen nowhere
		fmt.Fprintln(os.Stderr, "Cannot start http server for devtools.")
		forever()
	case "forks": // leaves a process in a session of its own, and exits
		cmd := exec.Command(os.Args[0], os.Args[1:]...)
		cmd.Env = append(os.Environ(), "FAKE=hang")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		os.Exit(0)
	case "daemon": // the same, but lives on itself
		cmd := exec.Command(os.Args[0], os.Args[1:]...)
		cmd.Env = append(os.Environ(), "FAKE=stubborn-hang")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			panic(err)
		}
	case "stubborn-hang":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		forever()
	case "stubborn": // ignores SIGTERM and the pipe
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
	case "flood": // never stops to print
		go func() {
			line := []byte(strings.Repeat("flood ", 1000) + "\n")
			for {
				os.Stderr.Write(line)
			}
		}()
	case "save", "saveslow": // saves its profile before it ends, and writes that down
		term := make(chan os.Signal, 1)
		signal.Notify(term, syscall.SIGTERM)
		save := sync.OnceFunc(func() {
			note("saving")
			time.Sleep(300 * time.Millisecond)
			note("saved")
			os.Exit(0)
		})
		go func() {
			<-term
			signal.Reset(syscall.SIGTERM) // as Chromium does: a second one kills
			save()
		}()
		go func() {
			io.Copy(io.Discard, os.NewFile(3, "pipe"))
			save()
		}()
		if what == "saveslow" { // and has no endpoint
			note("started")
			forever()
		}
		defer save()
	case "floodline": // one line without an end
		go func() {
			for {
				os.Stderr.Write([]byte(strings.Repeat("flood ", 1000)))
			}
		}()
	}
	if port == "" {
		answer()
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bind() failed: Address already in use")
		if l, err = net.Listen("tcp", "[::1]:"+port); err != nil {
			panic(err)
		}
	}
	guid := fmt.Sprintf("fake-%d", os.Getpid())
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if what == "mute" {
			time.Sleep(time.Hour)
		}
		if r.Header.Get("Upgrade") != "" { // messages go back, and bytes that are none
			c, buf, err := w.(http.Hijacker).Hijack()
			if err != nil {
				panic(err)
			}
			defer c.Close()
			accept := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
			fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
				"Sec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(accept[:]))
			if first, _ := buf.Peek(1); string(first) != "\x81" { // the beginning of a message
				io.Copy(c, buf)
				return
			}
			early, _ := buf.Peek(buf.Reader.Buffered())
			for conn := websocket.New(c, false, early); ; {
				m, err := conn.Next()
				if err != nil || conn.Relay(m) != nil {
					return
				}
			}
		}
		g := guid
		if what == "stranger" { // somebody else's browser answers
			g = "another"
		}
		fmt.Fprintf(w, `{"Browser":"Fake/1","webSocketDebuggerUrl":"ws://%s/devtools/browser/%s"}`, r.Host, g)
	}))
	addr := l.Addr().String()
	if what == "otherport" {
		addr = "127.0.0.1:1"
	}
	fmt.Fprintf(os.Stderr, "\nDevTools listening on ws://%s/devtools/browser/%s\n", addr, guid)
	if what == "stubborn" {
		forever()
	}
	io.Copy(io.Discard, os.NewFile(3, "pipe")) // as Chrome does with --remote-debugging-pipe
}
