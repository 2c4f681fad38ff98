package launch

import (
	"slices"
	"strings"
	"testing"
)

func TestFeaturesAreMerged(t *testing.T) {
	args := mergeFeatures([]string{"--a", "--disable-features=Mine,Translate",
		"--enable-features=MediaRouter<Trial:x/1", "--disable-features=More"}, "features", disabledFeatures)
	var off []string
	for _, a := range args {
		if s, ok := strings.CutPrefix(a, "--disable-features="); ok {
			if off != nil {
				t.Error("two flags: Chrome takes the last")
			}
			off = strings.Split(s, ",")
		}
	}
	for _, f := range []string{"Mine", "More", "Translate", "OptimizationHints"} {
		if n := len(slices.DeleteFunc(slices.Clone(off), func(s string) bool { return s != f })); n != 1 {
			t.Errorf("%s stands %d times in %v", f, n, off)
		}
	}
	if slices.Contains(off, "MediaRouter") {
		t.Error("what the user enables is disabled")
	}
}

// A page is not told that a program drives it, unless the user wants that.
func TestAutomationIsNotTold(t *testing.T) {
	const off = "--disable-blink-features="
	for given, want := range map[string]string{
		"--headless": off + "AutomationControlled",
		off + "Mine": off + "AutomationControlled,Mine",
		"--enable-blink-features=AutomationControlled": "",
	} {
		args := (&Spec{Args: []string{given}}).chromeCommand("/p", false)
		got := slices.DeleteFunc(args, func(a string) bool { return !strings.HasPrefix(a, off) })
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", given, got, want)
		}
	}
}

func TestDefaultArgsCanBeLeftOut(t *testing.T) {
	s := &Spec{NoDefaultArgs: true, Port: 7}
	got := s.chromeCommand("/p", true)
	if want := append(s.hold(), "--remote-debugging-port=7", "--user-data-dir=/p"); !slices.Equal(got, want) {
		t.Errorf("got %v want %v", got, want)
	}
}
