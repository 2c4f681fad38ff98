//go:build linux

package main_test

import (
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

func TestMCPStates(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	site := cmdtest.LoginSite(t)
	there := w.With("XDG_STATE_HOME=" + w.Dir + "/there")
	w.Env = append(w.Env, "XDG_STATE_HOME="+w.Dir+"/xdg")
	cmdtest.WriteFile(t, w.Dir+"/ann.json", `{"cookies":[{"name":"sid","value":"s3cret-cookie","url":"`+site+`"}],
		"origins":[{"origin":"`+site+`","localStorage":[{"name":"token","value":"s3cret-token"}]}]}`)
	w.Run("bproxy", "state", "import", w.Dir+"/ann.json").Exits(t, 0, "")
	for args, want := range map[string]string{"--shared": "none with --shared",
		"--profile p": "the place of the profile", "--browser firefox": "based on Chromium"} {
		w.Run("bmcp", append([]string{"--state", "ann"}, strings.Fields(args)...)...).Exits(t, 64, want)
	}
	w.Run("bmcp", "--state", "nobody").Exits(t, 69, `there is no state "nobody"`)
	refused := w.Attach(w.Cmd("bmcp", "--state", "nobody")) // a host shows what it is answered
	if r := refused.Call("initialize", "{}"); r.Error == nil || !strings.Contains(r.Error.Message,
		`bmcp cannot run: there is no state "nobody"`) {
		t.Errorf("a host is answered %s", r.Line)
	}
	refused.End()
	there.Shared("_A_INSTANCES=1") // which has states of its own
	w.Run("bmcp", "--pool", "--state", "ann").Exits(t, 69, `there is no state "ann"`)
	w.Run("bmcp", "config", "vscode", "--", "--pool", "--state", "ann").Exits(t, 0, "")
	w.Run("bpool", "state", "import", w.Dir+"/ann.json").Exits(t, 0, "")
	for _, kind := range []string{"--browser=chrome-headless-shell", "--pool"} {
		m := w.StartMCP([]string{"HOME=" + w.Dir}, kind, "--state", "ann", "--mcp", "builtin")
		m.Initialize("{}")
		m.AwaitTools("browser_navigate")
		m.Tool("browser_navigate", `{"url":"`+site+`"}`)
		const want = "shows ann, s3cret-token, nothing"
		cmdtest.Until(t, kind+" "+want, func() bool {
			return strings.Contains(m.Tool("browser_evaluate", `{"function":"() => document.title"}`).Line, want)
		})
		m.End()
	}
}
