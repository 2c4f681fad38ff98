//go:build linux

package clients_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// A client goes on after a person was private, who has done meanwhile what a person does.
func TestPrivate(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		switch r.URL.Path {
		case "/frame":
			fmt.Fprint(w, `<title>Frame</title>`)
		case "/tab":
			fmt.Fprint(w, `<title>Tab</title>`)
		default:
			fmt.Fprintf(w, `<title>Shop</title><button id="go" onclick="clicked++">go</button>
				<script>let clicked = 0</script><iframe src="%s/frame"></iframe>`,
				strings.Replace("http://"+r.Host, "127.0.0.1", "localhost", 1))
		}
	}))
	t.Cleanup(site.Close)
	w := cmdtest.New(t)
	p := w.Proxy("share", "--browser", "chromium")
	for _, which := range []string{"playwright", "puppeteer"} {
		t.Run(which, func(t *testing.T) {
			c := w.Cmd("node", filepath.Join(cmdtest.Clients(t), "private.mjs"), which, p.URL+"/session/"+which,
				site.URL+"/")
			c.Env = slices.Concat(c.Env, []string{"HOME=" + w.Dir})
			var errs cmdtest.SyncBuffer
			c.Stderr = &errs
			out, err := c.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			in, err := c.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			cmdtest.Start(t, c)
			lines := bufio.NewScanner(out)
			says := func(want string) {
				t.Helper()
				if !lines.Scan() || lines.Text() != want {
					t.Fatalf("it says %q, not %q\n%s", lines.Text(), want, errs.String())
				}
			}
			says("ready")
			person := attach(t, w, which)
			person.call("", "Btools.take", map[string]any{"holder": "a-person-of-the-test", "private": true}, nil)
			person.call(person.page, "Page.navigate", map[string]any{"url": site.URL + "/inside?code=secret"}, nil)
			var closes struct{ TargetID string }
			person.call("", "Target.createTarget", map[string]any{"url": site.URL + "/closes"}, &closes)
			person.call("", "Target.closeTarget", map[string]any{"targetId": closes.TargetID}, nil)
			var got struct{ Result struct{ Value string } }
			evaluate := func(expression string) string {
				t.Helper()
				person.call(person.page, "Runtime.evaluate", map[string]any{"expression": expression,
					"userGesture": true, "awaitPromise": true}, &got)
				return got.Result.Value
			}
			cmdtest.Until(t, "the page has loaded, with its frame", func() bool {
				return evaluate(`document.readyState + location.pathname`) == "complete/inside"
			})
			evaluate(`open("/tab"), ""`)
			cmdtest.Until(t, "the tab of the page has loaded", func() bool {
				var all struct{ TargetInfos []struct{ Title string } }
				person.call("", "Target.getTargets", nil, &all)
				return slices.Contains(all.TargetInfos, struct{ Title string }{"Tab"})
			})
			io.WriteString(in, "private\n")
			says("refused")
			person.call("", "Btools.give", nil, nil)
			io.WriteString(in, "over\n")
			in.Close()
			says("done")
			c.Wait()
			if errs := errs.String(); errs != "" {
				t.Errorf("%s", errs)
			}
		})
	}
	p.Stop()
	w.Clean()
}
