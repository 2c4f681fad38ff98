//go:build linux

package main_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/jpeg"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
)

// telling is a page that is green while it has a text, tells it in the ways that are recorded, and wipes it when it is
// asked to.
const telling = `<!doctype html><title>Shop</title><body style="background: #fff"><input id="pass" autofocus><script>
	let open = 0; // requests
	pass.oninput = () => {
		const v = pass.value;
		if (v.length !== 32) return;
		document.body.style.background = "#0f0";
		console.log("typed", v, {v}); console.error(new Error(v)); document.title = v; document.cookie = "v=" + v;
		history.replaceState({}, "", "/page/" + v); localStorage.v = v; setTimeout(() => { throw new Error(v) }, 0);
		const a = document.createElement("a"); a.href = "/post/" + v; a.download = "file.txt"; a.click();
		open++;
		fetch("/post/" + v, {method: "POST", body: v, headers: {"X-V": v}}).finally(() => { open-- });
	};
	const wipe = () => {
		pass.value = ""; document.title = "Shop"; document.cookie = "v=; max-age=0"; localStorage.clear();
		history.replaceState({}, "", "/"); document.body.style.background = "#fff";
	}</script>`

// What the programs write has nothing of a secret that a person types in private: traces, archives, evidence, casts,
// logs and lists.
func TestPrivateFiles(t *testing.T) {
	t.Parallel()
	site := cmdtest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			fmt.Fprint(w, telling)
			return
		}
		fmt.Fprint(w, r.URL) // echoes
	})
	browsers, rounds := []string{"chrome-headless-shell"}, 1
	if cmdtest.IsLong {
		browsers, rounds = append(browsers, "chromium"), 20
	}
	for _, browser := range browsers {
		t.Run(browser, func(t *testing.T) {
			w := cmdtest.New(t)
			t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
			out := w.Dir + "/out"
			p := w.Proxy("share", "--browser", browser, "--trace", out+"/traces", "--log-level", "debug")
			events := w.Events("bproxy")
			address := strings.TrimSpace(w.Run("bproxy", "view", "--no-open").Out)
			var secrets []string
			for n := range rounds {
				secrets = append(secrets, typeInPrivate(t, w, p, fmt.Sprint("shop-", n), site, address, out))
			}
			p.Stop()
			cmdtest.WriteFile(t, out+"/again.har", w.Run("bproxy", "har", out+"/traces").Out)
			cmdtest.WriteFile(t, out+"/said", p.Errs.String()+events.String())
			checkFiles(t, out, secrets)
		})
	}
}

// typeInPrivate has a person type a secret in a session that is recorded in all ways, and returns it.
func typeInPrivate(t *testing.T, w *cmdtest.World, p *cmdtest.Proxy, session, site, address, out string) string {
	t.Helper()
	agent := openSession(t, p, session, site)
	agent.until("the page is there", `document.readyState === "complete" && window.pass`)
	for _, domain := range []string{"Network", "Runtime", "Log", "DOM"} {
		agent.call(domain+".enable", nil, nil)
	}
	said := func(c string, errs *cmdtest.SyncBuffer, what string) {
		t.Helper()
		cmdtest.Until(t, c+" says "+what, func() bool { return strings.Contains(errs.String(), what) })
	}
	film := out + "/" + session + ".mjpeg"
	cast := w.Cmd("bproxy", "cast", session, film)
	var casts, records cmdtest.SyncBuffer
	cast.Stderr = &casts
	cmdtest.Start(t, cast)
	record := w.Cmd("bproxy", "record")
	record.Stdout = &records
	in, err := record.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmdtest.Start(t, record)
	fmt.Fprintf(in, `{"url":"ws://%s/session/%s/devtools/browser/x","dir":%q,"name":"evidence"}`+"\n", p.Addr, session,
		out)
	said("bproxy record", &records, "path")
	cmdtest.Until(t, "there is a film", func() bool {
		b, _ := os.ReadFile(film)
		return bytes.Contains(b, []byte("--frame\r\n"))
	})

	x, _ := openView(w, address, "/session/"+session, "")
	var targets struct{ TargetInfos []struct{ TargetID string } }
	agent.conn.Call(t.Context(), "", "Target.getTargets", nil, &targets)
	x.ask("Btools.take", map[string]any{"holder": strings.Repeat("x", 16), "private": true})
	said("bproxy cast", &casts, "in private")
	secret := (rand.Text() + rand.Text())[:32]
	mine := dialPerson(x, targets.TargetInfos[0].TargetID)
	if got := mine("Runtime.evaluate", map[string]any{"expression": "pass.focus()"}); !strings.Contains(got, "result") {
		t.Fatal(got)
	}
	mine("Input.insertText", map[string]any{"text": secret})
	if got := mine("Runtime.evaluate", map[string]any{"expression": "pass.value"}); !strings.Contains(got, secret) {
		t.Fatalf("typed is %s", got)
	}
	got := w.Run("bproxy", "downloads", session, "--wait")
	if got.Code != 0 || !strings.Contains(got.Out, `"url":"`+site+`/"`) {
		t.Errorf("the downloads are %+v", got)
	}
	cmdtest.WriteFile(t, out+"/list-"+session, got.Out+w.Run("bproxy", "session", "list").Out+
		w.Run("bproxy", "status").Out)
	cmdtest.Until(t, "the page has told all", func() bool {
		return strings.Contains(mine("Runtime.evaluate", map[string]any{"expression": "open"}), `"value":0`)
	})
	time.Sleep(300 * time.Millisecond) // a film would have a frame
	mine("Runtime.evaluate", map[string]any{"expression": "wipe()"})
	x.ask("Btools.give", nil)
	agent.eval(`(async () => { console.log("afterwards"); document.title = "After";
		await (await fetch("/after")).text() })()`)
	var recorded struct{ Path string }
	json.Unmarshal([]byte(records.String()), &recorded)
	for file, want := range map[string]string{"console.txt": "afterwards", "trace.jsonl": "/after"} {
		cmdtest.Until(t, "the evidence has what comes afterwards", func() bool {
			b, _ := os.ReadFile(recorded.Path + "/" + file)
			return strings.Contains(string(b), want)
		})
	}
	in.Close()
	record.Wait()
	cast.Process.Signal(syscall.SIGINT)
	cast.Wait()
	cmdtest.WriteFile(t, out+"/"+session+".said", casts.String()+records.String())
	return secret
}

// dialPerson attaches a person to a page, and returns what sends it commands.
func dialPerson(x viewPage, target string) (ask func(method string, params any) string) {
	x.t.Helper()
	_, at, _ := strings.Cut(x.ask("Target.attachToTarget", map[string]any{"targetId": target, "flatten": true}), `:"`)
	at, _, _ = strings.Cut(at, `"`)
	return func(method string, params any) string { return x.askOn(at, method, params) }
}

// checkFiles asserts that the files in a directory have nothing of secrets, and what is there else.
func checkFiles(t *testing.T, dir string, secrets []string) {
	t.Helper()
	var all []string
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		all = append(all, fmt.Sprintf("%s (%d)", strings.TrimPrefix(path, dir+"/"), len(b)))
		for _, secret := range secrets {
			for i := range len(secret) - 7 {
				parts := []string{secret[i : i+8]}
				if i+12 <= len(secret) {
					parts = append(parts, base64.StdEncoding.EncodeToString([]byte(secret[i:i+12])))
				}
				for _, part := range parts {
					if at := bytes.Index(b, []byte(part)); at >= 0 {
						t.Fatalf("%s has %q", path, b[max(0, at-200):min(len(b), at+100)])
					}
				}
			}
		}
		switch {
		case strings.HasSuffix(path, ".mjpeg"):
			checkColors(t, path, b)
		case strings.HasSuffix(path, ".har") || strings.HasSuffix(path, "console.txt"):
			if !bytes.Contains(b, []byte("private: a person")) &&
				!bytes.Contains(b, []byte("a person was private since")) || !bytes.Contains(b, []byte("after")) {
				t.Errorf("%s says nothing of it, or of what comes after: %.3000s", path, b)
			}
		}
		return nil
	})
	for _, want := range []string{"again.har", "traces/", "evidence/console.txt", ".mjpeg"} {
		if !strings.Contains(strings.Join(all, " "), want) {
			t.Errorf("there is no %s, but %s", want, all)
		}
	}
	t.Logf("%d secrets, files: %s", len(secrets), all)
}

// checkColors asserts that no frame of a recording is of the time in which the page was green.
func checkColors(t *testing.T, path string, b []byte) {
	t.Helper()
	parts := multipart.NewReader(bufio.NewReader(bytes.NewReader(append(b, "--frame--\r\n"...))), "frame")
	for n := 0; ; n++ {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		image, err := jpeg.Decode(part)
		if err != nil {
			t.Fatalf("%s, frame %d: %v", path, n, err)
		}
		if r, g, _, _ := image.At(image.Bounds().Dx()/2, image.Bounds().Dy()-5).RGBA(); r < g/2 {
			t.Errorf("%s, frame %d is green", path, n)
		}
	}
}
