package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
)

// release is the version that the linker was given (-X), "" if it was given none.
var release string

// Release is the version of this program, without a "v": the one that the
// linker was given, else the module's as Go has recorded it, from a tag or a
// commit of the repository, else "unknown".
func Release() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "(devel)" && info.Main.Version != "" {
		return strings.TrimPrefix(info.Main.Version, "v")
	}
	return "unknown"
}

// version is what --version --output json prints.
type version struct {
	Program  string `json:"program"`
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // the commit, if Go has recorded it
	Time     string `json:"time,omitempty"`     // of that commit, RFC 3339
	Modified bool   `json:"modified,omitempty"` // there were changes that were not committed
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func printVersion(w io.Writer, program string, asJSON bool) error {
	if !asJSON {
		_, err := fmt.Fprintf(w, "%s %s\n", program, Release())
		return err
	}
	v := version{Program: program, Version: Release(), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Revision = s.Value
			case "vcs.time":
				v.Time = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
	}
	return json.NewEncoder(w).Encode(v)
}
