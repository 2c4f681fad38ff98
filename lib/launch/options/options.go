// Package options say what browser to launch and how: by flags that blaunch
// has, and that others hand on to it.
package options

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"btools/lib/record"
	"btools/lib/spell"
)

// Options are what was asked for; what is nil or "" was left to the default.
type Options struct {
	Browser       string   `json:"browser,omitempty"` // a type or a path
	Headless      *bool    `json:"headless,omitempty"`
	Profile       string   `json:"profile,omitempty"` // an absolute path
	Args          []string `json:"args,omitempty"`
	NoDefaultArgs *bool    `json:"no_default_args,omitempty"`
	WindowSize    string   `json:"window_size,omitempty"` // "W,H" in pixels
	Env           []string `json:"env,omitempty"`         // K=V
	Sandbox       string   `json:"sandbox,omitempty"`     // auto, on or off
}

// Check returns what is wrong with the options, "" if nothing is.
func (o Options) Check() string {
	// They travel as JSON, which would make other names of them.
	for _, f := range []struct {
		name   string
		values []string
	}{{"browser", []string{o.Browser}}, {"profile", []string{o.Profile}}, {"arg", o.Args}, {"env", o.Env}} {
		for _, v := range f.values {
			if !utf8.ValidString(v) {
				return fmt.Sprintf("--%s %q is not valid UTF-8", f.name, v)
			}
		}
	}
	switch {
	case o.Browser == record.WebKit:
		return "--browser webkit: WebKit has no debugging endpoint to launch it with; clients of Playwright " +
			"bring their own"
	case o.Browser != "" && !IsPath(o.Browser) && !slices.Contains(record.Types, o.Browser):
		wrong := "--browser is a path or one of " + strings.Join(record.Types, ", ") + ", not " +
			strconv.Quote(o.Browser)
		if near := spell.Nearest(o.Browser, record.Types); near != "" {
			wrong += ": did you mean " + near + "?"
		} else if path, err := exec.LookPath(o.Browser); err == nil {
			wrong += ": did you mean " + path + "?"
		}
		return wrong
	case o.WindowSize != "" && !validSize(o.WindowSize):
		return "--window-size is W,H in pixels, such as 1280,720, not " + strconv.Quote(o.WindowSize)
	case !slices.Contains([]string{"", "auto", "on", "off"}, o.Sandbox):
		return "--sandbox is auto, on or off, not " + strconv.Quote(o.Sandbox)
	case o.Profile != "" && !filepath.IsAbs(o.Profile):
		return "the profile is not an absolute path: " + strconv.Quote(o.Profile)
	}
	for _, kv := range o.Env {
		if k, _, ok := strings.Cut(kv, "="); !ok || k == "" {
			return "--env is K=V, not " + strconv.Quote(kv)
		}
	}
	for _, a := range o.Args {
		for _, ours := range []string{"--remote-debugging-port", "--user-data-dir", "--remote-debugging-pipe"} {
			if name, _, _ := strings.Cut(a, "="); name == ours {
				return "--arg " + a + ": use the flags --port of blaunch and --profile"
			}
		}
	}
	return ""
}

// IsHeadless reports whether the browser has no window, which is the default.
func (o Options) IsHeadless() bool { return o.Headless == nil || *o.Headless }

// IsPath reports whether a browser is named by its path rather than by its type.
func IsPath(browser string) bool { return strings.ContainsRune(browser, filepath.Separator) }

func validSize(s string) bool {
	w, h, _ := strings.Cut(s, ",")
	for _, n := range []string{w, h} {
		if px, err := strconv.ParseUint(n, 10, 16); err != nil || px == 0 {
			return false
		}
	}
	return true
}

// With is these options where the others are silent, else the others.
func (o Options) With(over Options) Options {
	if over.Browser != "" {
		o.Browser = over.Browser
	}
	if over.Headless != nil {
		o.Headless = over.Headless
	}
	if over.Profile != "" {
		o.Profile = over.Profile
	}
	if over.Args != nil {
		o.Args = over.Args
	}
	if over.NoDefaultArgs != nil {
		o.NoDefaultArgs = over.NoDefaultArgs
	}
	if over.WindowSize != "" {
		o.WindowSize = over.WindowSize
	}
	if over.Env != nil {
		o.Env = over.Env
	}
	if over.Sandbox != "" {
		o.Sandbox = over.Sandbox
	}
	return o
}

// Argv is the options as blaunch takes them.
func (o Options) Argv() []string {
	var argv []string
	add := func(name string, values ...string) {
		for _, v := range values {
			if v != "" {
				argv = append(argv, "--"+name+"="+v)
			}
		}
	}
	add("browser", o.Browser)
	if o.Headless != nil {
		add("no-headless", strconv.FormatBool(!*o.Headless))
	}
	add("profile", o.Profile)
	add("arg", o.Args...)
	if o.NoDefaultArgs != nil {
		add("no-default-args", strconv.FormatBool(*o.NoDefaultArgs))
	}
	add("window-size", o.WindowSize)
	add("env", o.Env...)
	add("sandbox", o.Sandbox)
	return argv
}
