package launch

import "btools/lib/record"

// SandboxOff decides what --sandbox auto means for the browser: why the
// sandbox is to be off, "" to leave it on. A Firefox does without by itself
// where it must.
func SandboxOff(b record.Browser, getenv func(string) string) string {
	if b.Type == record.Firefox {
		return ""
	}
	if ci := getenv("CI"); ci != "" && ci != "false" && ci != "0" {
		return "CI is set"
	}
	return sandboxDenied(b.Path)
}
