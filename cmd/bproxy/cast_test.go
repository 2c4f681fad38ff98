//go:build linux

package main_test

import (
	"bufio"
	"bytes"
	"fmt"
	"image/jpeg"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
	"btools/lib/jsonrpc"
)

// frames returns the frames of a recording, each of which must be whole.
func frames(t *testing.T, path string) (n int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	parts := multipart.NewReader(bufio.NewReader(bytes.NewReader(append(b, "--frame--\r\n"...))), "frame")
	for {
		p, err := parts.NextRawPart()
		if err == io.EOF {
			return n
		}
		if err != nil {
			t.Fatalf("%s, after %d frames: %v", path, n, err)
		}
		image, err := io.ReadAll(p)
		if err == nil {
			_, err = jpeg.Decode(bytes.NewReader(image))
		}
		if h := textproto.MIMEHeader(p.Header); err != nil || h.Get("Content-Length") != fmt.Sprint(len(image)) ||
			h.Get("X-Timestamp") == "" {
			t.Fatalf("%s, frame %d: %v, %v", path, n, err, h)
		}
		n++
	}
}

// A recording of a page that moves: its frames are whole however it ends, and
// the page and its client notice nothing.
func TestCast(t *testing.T) {
	t.Parallel()
	site := cmdtest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `<!doctype html><title>moves</title><h1>0</h1><script>
			let n = 0, resized = 0;
			setInterval(() => { document.querySelector("h1").textContent = ++n }, 100);
			onresize = () => resized++;
			const state = () => [innerWidth, innerHeight, devicePixelRatio, resized, document.visibilityState,
				document.hasFocus()].join()</script>`)
	})
	w := cmdtest.New(t)
	w.Run("bproxy", "cast", "one", w.Dir+"/x.mjpeg").Exits(t, 69, "no bproxy share is running")
	p := w.Proxy("--isolate", "--window-size", "320,240") // each frame costs less
	session := "ws://" + p.Addr + "/session/one/devtools/browser/one"
	w.Run("bproxy", "cast", "one", w.Dir+"/x.mjpeg").Exits(t, 69, `no named session "one"`)
	c := cmdtest.Dial(t, session)
	id := jsonrpc.GetString([]byte(c.Ask("Target.createTarget", `{"url":"`+site+`"}`)), "result", "targetId")
	page := cmdtest.Dial(t, "ws://"+p.Addr+"/session/one/devtools/page/"+id)
	state := func() string {
		got := page.Ask("Runtime.evaluate", `{"expression":"state()"}`)
		return jsonrpc.GetString([]byte(got), "result", "result", "value")
	}
	cmdtest.Until(t, "the page is loaded", func() bool { return strings.Contains(state(), "true") })
	before, targets := state(), c.Ask("Target.getTargets", `{}`)
	count := func() int { return strings.Count(c.Ask("Target.getTargets", `{}`), `"targetId"`) }
	pages := strings.Count(targets, `"targetId"`)
	start := func(t *testing.T, args ...string) *exec.Cmd {
		t.Helper()
		cmd := w.Cmd("bproxy", append([]string{"cast"}, args...)...)
		cmd.Stderr = &cmdtest.SyncBuffer{}
		cmdtest.Start(t, cmd)
		return cmd
	}
	said := func(cmd *exec.Cmd) string { return cmd.Stderr.(*cmdtest.SyncBuffer).String() }
	recorded := func(path string, n int) func() bool {
		return func() bool {
			b, _ := os.ReadFile(path)
			return bytes.Count(b, []byte("--frame\r\n")) >= n
		}
	}
	t.Run("of what shells offer", func(t *testing.T) {
		one, port := []string{"one"}, strings.TrimPrefix(p.Addr, "127.0.0.1:")
		w.CheckOffers(map[string][]string{
			"bproxy session end ": one, "bproxy session new o": nil, "bproxy downloads ": one,
			"bproxy state save x --from o": one, "bproxy --root-session=": one,
			"bproxy session end --port 1 ": nil, "bproxy session end --port=" + port + " ": one,
			"bproxy status ": {port}, "bproxy stop 1": nil, "bproxy watch --port=": {port}, "bproxy join --port ": nil,
			"bproxy cast one --page " + id[:30]: {id}, "bproxy cast --page=" + id[:30]: nil,
		})
		w.CheckOffers(map[string][]string{"bproxy cast ": one}, "bash") // the others offer files, too
		// At the port of a service that is not listed, systemd may listen.
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				t.Error("a completion would start the service")
				c.Close()
			}
		}()
		other := fmt.Sprint(" --port ", l.Addr().(*net.TCPAddr).Port, " ")
		w.CheckOffers(map[string][]string{"bproxy session end" + other: nil, "bproxy cast one" + other + "--page ": nil,
			"bproxy join" + other: nil, "bproxy state show" + other + "x": nil}, "bash")
		if got, n := state(), count(); got != before || n != pages {
			t.Errorf("the page is %s and not %s, and there are %d targets, not %d", got, before, n, pages)
		}
	})
	t.Run("until it is interrupted, at the default pace, unseen by the page", func(t *testing.T) {
		file := w.Dir + "/a.mjpeg"
		began := time.Now()
		cast := start(t, "one", file)
		cmdtest.Until(t, "there are frames", recorded(file, 6))
		if got, n := state(), count(); got != before || n != pages {
			t.Errorf("while it is recorded, the page is %s and not %s, and there are %d targets, not %d", got, before,
				n,
				pages)
		}
		cast.Process.Signal(syscall.SIGINT)
		if err := cast.Wait(); err != nil {
			t.Errorf("interrupted: %v, %s", err, said(cast))
		}
		if n, most := frames(t, file), int(time.Since(began).Seconds()*5)+2; n < 6 || n > most {
			t.Errorf("%d frames in %v, want 6 to %d", n, time.Since(began), most)
		}
		if info, _ := os.Stat(file); info.Mode().Perm() != 0o600 {
			t.Errorf("the recording has the mode %v, want 0600", info.Mode())
		}

	})
	t.Run("of a given length, into a directory", func(t *testing.T) {
		dir := w.Dir + "/frames"
		w.Run("bproxy", "cast", "one", "--page", id, "--fps", "2", "--duration", "2s", dir).Exits(t, 0, "frames in")
		list, _ := os.ReadFile(dir + "/frames.ffconcat")
		images, _ := filepath.Glob(dir + "/*.jpg")
		if n := len(images); n == 0 || n > 6 || strings.Count(string(list), "\nfile ") != n ||
			strings.Count(string(list), "\nduration ") != n {
			t.Errorf("%v, want 1 to 6 images, all in the list\n%s", images, list)
		}
		for _, path := range images {
			b, _ := os.ReadFile(path)
			if _, err := jpeg.Decode(bytes.NewReader(b)); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		w.Run("bproxy", "cast", "one", dir).Exits(t, 1, "already has a recording")

	})
	t.Run("of a browser without sessions, and on a full disk", func(t *testing.T) {
		alone := w.Proxy("--target", p.URL+"/session/one")
		port := strings.TrimPrefix(alone.Addr, "127.0.0.1:")
		w.Run("bproxy", "cast", "--port", port, "--duration", "1s", w.Dir+"/b.mjpeg").Exits(t, 0, " in ")
		if frames(t, w.Dir+"/b.mjpeg") == 0 {
			t.Error("no frames of a browser without sessions")
		}
		os.Symlink("/dev/full", w.Dir+"/full.mjpeg")
		w.Run("bproxy", "cast", "--port", port, w.Dir+"/full.mjpeg").Exits(t, 1, "no space left")
		alone.Stop()

	})
	t.Run("of one of several pages, which goes elsewhere and is closed", func(t *testing.T) {
		c.Ask("Target.createTarget", `{"url":"`+site+`/2"}`)
		w.Run("bproxy", "cast", "one", w.Dir+"/x.mjpeg").Exits(t, 64, "several pages; choose one with --page:\n  ")
		w.Run("bproxy", "cast", "one", "--page", "x", w.Dir+"/x.mjpeg").Exits(t, 69, "no page x; there are:\n  ")
		if _, err := os.Stat(w.Dir + "/x.mjpeg"); err == nil {
			t.Error("a recording that did not begin has a file")
		}
		file := w.Dir + "/c.mjpeg"
		cast := start(t, "one", "--page", id, file)
		cmdtest.Until(t, "there are frames", recorded(file, 2))
		n := frames(t, file)
		page.Ask("Page.navigate", `{"url":"`+strings.Replace(site, "127.0.0.1", "localhost", 1)+`"}`)
		cmdtest.Until(t, "there are frames of another site", recorded(file, n+8))
		c.Ask("Target.closeTarget", `{"targetId":"`+id+`"}`)
		if err := cast.Wait(); err != nil || !strings.Contains(said(cast), "ended with the page") {
			t.Errorf("after the end of its page: %v, %s", err, said(cast))
		}
		frames(t, file)

	})
	t.Run("of a session that does not exist yet, with its last state", func(t *testing.T) {
		file := w.Dir + "/e.mjpeg"
		cast := start(t, "two", "--wait", file)
		cmdtest.Until(t, "it says what it waits for", func() bool {
			return strings.Contains(said(cast), `waiting for a page: there is no named session "two"`)
		})
		c := cmdtest.Dial(t, "ws://"+p.Addr+"/session/two/devtools/browser/two")
		id := jsonrpc.GetString([]byte(c.Ask("Target.createTarget", `{"url":"data:text/html,<body bgcolor=red>"}`)),
			"result", "targetId")
		page := cmdtest.Dial(t, "ws://"+p.Addr+"/session/two/devtools/page/"+id)
		cmdtest.Until(t, "there is a frame", recorded(file, 1))
		page.Ask("Runtime.evaluate", `{"expression":"document.body.bgColor = '#00ff00'"}`)
		cast.Process.Signal(syscall.SIGINT)
		if err := cast.Wait(); err != nil {
			t.Errorf("interrupted: %v, %s", err, said(cast))
		}
		if n := frames(t, file); n < 2 {
			t.Errorf("%d frames, want the last state, too", n)
		}
		b, _ := os.ReadFile(file)
		_, last, _ := bytes.Cut(b[bytes.LastIndex(b, []byte("--frame\r\n")):], []byte("\r\n\r\n"))
		image, err := jpeg.Decode(bytes.NewReader(last))
		if err != nil {
			t.Fatal(err)
		}
		if r, g, b, _ := image.At(9, 9).RGBA(); r>>8 > 50 || g>>8 < 200 || b>>8 > 50 {
			t.Errorf("the last frame has the color %d %d %d, want green", r>>8, g>>8, b>>8)
		}
		w.Run("bproxy", "session", "end", "two").Exits(t, 0, "")
		none := start(t, "three", "--wait", file)
		cmdtest.Until(t, "it waits", func() bool { return strings.Contains(said(none), "waiting for a page") })
		none.Process.Signal(syscall.SIGTERM)
		if none.Wait(); none.ProcessState.ExitCode() != 143 {
			t.Errorf("interrupted while it waits: %v, %s", none.ProcessState, said(none))
		}
		bare := w.Cmd("bproxy", "cast", "one", w.Dir+"/f.webm")
		bare.Env = append(bare.Env, "PATH=/nowhere")
		if out, _ := cmdtest.Combined(bare); bare.ProcessState.ExitCode() != 69 ||
			!strings.Contains(string(out), "ffmpeg is not installed") {
			t.Errorf("without ffmpeg: %v, %s", bare.ProcessState, out)
		}
	})
	t.Run("until the session ends", func(t *testing.T) {
		file := w.Dir + "/d.mjpeg"
		cast := start(t, "one", file)
		cmdtest.Until(t, "there are frames", recorded(file, 1))
		w.Run("bproxy", "session", "end", "one").Exits(t, 0, "")
		if err := cast.Wait(); err != nil || !strings.Contains(said(cast), "the session has ended") {
			t.Errorf("after the end of its session: %v, %s", err, said(cast))
		}
		frames(t, file)
	})
	w.Run("bproxy", "cast", "one").Exits(t, 64, "has sessions: name one")
	w.Run("bproxy", "cast", "one", "--fps", "0", "x").Exits(t, 64, "1 to 60")
	p.Stop()
	w.Clean()
}
