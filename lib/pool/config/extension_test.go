package config

import (
	"strings"
	"testing"
	"time"
)

// The browser of an instance with LAUNCH=extension is as its user has it:
// values for other pools do not hold for it, and its own are refused.
func TestJoined(t *testing.T) {
	c, err := load(t, `
browser = "firefox"
headless = true
max_uses = 3
idle = "5m"
timeout = "7s"
[pool.A]
instances = 2
is_default = true
launch = "extension"
[pool.B]
instances = 1
`)
	if err != nil {
		t.Fatal(err)
	}
	a, b := c.Pools[0].Instances[1], c.Pools[1].Instances[0]
	if !a.Extension || !a.Launch || a.Browser != "" || a.IsHeadless() || a.MaxUses != 0 || a.Idle != 0 ||
		!a.Isolated || a.Timeout != 7*time.Second {
		t.Errorf("an instance whose browser joins has %+v", a)
	}
	if b.Extension || b.Browser != "firefox" || b.MaxUses != 3 || b.Isolated {
		t.Errorf("the other one has %+v", b)
	}
	joined := []string{"_A_INSTANCES=1", "_A_LAUNCH=extension"}
	for _, x := range []struct {
		vars []string
		says string
	}{
		{append(joined, "_A_BROWSER=chrome"),
			`BROWSER has no effect with launch = "extension": the browser is its user's`},
		{append(joined, "HEADLESS=false"), "HEADLESS has no effect"},
		{append(joined, "_A_ISOLATION=context"), "each lease has a browser that no other lease has"},
		{append(joined, "_A__0_MAX_USES=5"), "bpool neither launches the browser nor stops it"},
		{append(joined, "MAX_MEMORY=1GiB"), "bpool neither launches the browser nor stops it"},
		{append(joined, "_A_STATE=shop"), "leases have the logins of the browser's user"},
		{append(joined, "_A_PROXY=http://proxy:1"), "PROXY has no effect"},
		{append(joined, "_A_DOWNLOADS=/d"), "the hub, bproxy hub, has the sessions"},
		{append(joined, "_B_INSTANCES=1", "_A_IS_DEFAULT=1", "_B_ISOLATION=context", "PROXY=http://proxy:1"),
			"PROXY is set for A/0, which has a browser to itself"},
		{[]string{"_A_INSTANCES=1", "_B_INSTANCES=1", "_A_IS_DEFAULT=1", "_B_ISOLATION=context", "BLOCK_PRIVATE=1"},
			"BLOCK_PRIVATE is set for A/0, which has a browser to itself"},
		{[]string{"_A_INSTANCES=1", "_A_LAUNCH=maybe"}, "must be true, false or extension"},
	} {
		if _, err := load(t, "", x.vars...); err == nil || !strings.Contains(err.Error(), x.says) ||
			strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%v: %v; want %q alone", x.vars, err, x.says)
		}
	}
}
