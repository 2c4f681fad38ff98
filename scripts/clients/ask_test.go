//go:build linux

package clients_test

import (
	"os"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// A person is asked by the lines of the manual, for Playwright and Puppeteer, and by the SDK's host of MCP.
func TestAskClients(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	p := w.Proxy("share", "--browser", "chrome-headless-shell")
	os.Symlink(cmdtest.Clients(t)+"/node_modules", w.Dir+"/node_modules")
	lines := recipe(t, "ask.mjs")
	first, _, _ := strings.Cut(lines, "\n")
	instead, _, _ := strings.Cut(recipe(t, "puppeteer-ask.mjs"), "\n")
	const end = "console.log(outcome, note);\nawait (browser.disconnect?.() ?? browser.close());\n"
	cmdtest.WriteFile(t, w.Dir+"/playwright.mjs", `import { chromium } from 'playwright-core';
const browser = await chromium.connectOverCDP(process.argv[2]);
`+lines+end)
	cmdtest.WriteFile(t, w.Dir+"/puppeteer.mjs", `import puppeteer from 'puppeteer-core';
const browser = await puppeteer.connect({ browserURL: process.argv[2] });
`+strings.Replace(lines, first, instead, 1)+end)
	for which, args := range map[string][]string{"playwright": {w.Dir + "/playwright.mjs"},
		"puppeteer": {w.Dir + "/puppeteer.mjs"}, "sdk": {cmdtest.Clients(t) + "/ask.mjs"}} {
		t.Run(which, func(t *testing.T) {
			c := w.Cmd("node", append(args, p.URL+"/session/"+which, cmdtest.Bin+"/bmcp")...)
			c.Env = append(c.Env, "HOME="+w.Dir)
			var out, errs cmdtest.SyncBuffer
			c.Stdout, c.Stderr = &out, &errs
			cmdtest.Start(t, c)
			cmdtest.Until(t, "a person is asked", func() bool {
				return c.ProcessState != nil || strings.Contains(w.Run("bproxy", "session", "list").Out,
					`"ask":{"instructions":"Log in to shop`)
			})
			person := attach(t, w, which)
			person.call("", "Btools.take", map[string]any{"holder": "a-person-of-the-test"}, nil)
			person.call("", "Btools.give", map[string]any{"outcome": "done", "note": "as Anna"}, nil)
			c.Wait()
			want := "done as Anna\n"
			if which == "sdk" {
				want = "url The agent asks you: Log in to shop true " + want
			}
			if out.String() != want {
				t.Errorf("it says %q, %s", out.String(), errs.String())
			}
		})
	}
}
