//go:build linux

package clients_test

import (
	"os"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// recipe is the file of that name that btools-clients(7) shows, which begins
// with its name in a comment.
func recipe(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(cmdtest.Root + "/man/btools-clients.7")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(b), "\n// "+name+"\n")
	code, _, ends := strings.Cut(rest, ".Ed\n")
	if !found || !ends {
		t.Fatalf("the page has no %s", name)
	}
	return code
}

// The clients that the manual shows get the browser of blaunch.
func TestRecipes(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	modules := cmdtest.Clients(t) + "/node_modules"
	os.Symlink(modules, w.Dir+"/node_modules")
	write := func(name, text string) {
		if err := os.WriteFile(w.Dir+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("fixtures.js", recipe(t, "fixtures.js"))
	write("a.spec.js", `const { test } = require('./fixtures');
test('the browser is the one of blaunch', async ({ page }) => {
  await page.goto('data:text/html,<title>here</title>');
  const list = await (await fetch(process.env.BTOOLS_CDP_URL + '/json/list')).json();
  if (!list.some((t) => t.title === 'here')) throw new Error(JSON.stringify(list));
});
`)
	write("puppeteer.mjs", recipe(t, "puppeteer.mjs")+`const page = await browser.newPage();
await page.goto('data:text/html,<title>here</title>');
console.log(await page.title(), await browser.version());
await browser.disconnect();
`)
	if r := w.Run("sh", "-c", "cd "+w.Dir+" && blaunch -- node_modules/.bin/playwright test"); r.Code != 0 ||
		!strings.Contains(r.Out, "1 passed") {
		t.Errorf("Playwright Test: %+v", r)
	}
	kinds := map[string]string{"chrome-headless-shell": "here HeadlessChrome/"}
	if cmdtest.IsLong { // TestClientsOfFirefox has Puppeteer on Firefox
		kinds["firefox"] = "here firefox/"
	}
	for browser, want := range kinds {
		r := w.Run("sh", "-c", "cd "+w.Dir+" && bfind --type "+browser+
			" --first | blaunch --timeout 60s - -- node puppeteer.mjs")
		if r.Code != 0 || !strings.HasPrefix(r.Out, want) {
			t.Errorf("Puppeteer on %s: %+v", browser, r)
		}
	}
	w.Clean()
}
