package coordinator

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// vsCode is what there is of VS Code: its own browser (tier 2), its preview
// (tier 1), or nothing.
type vsCode struct {
	Tier    string `json:"tier"` // standard, 1 or 2
	Meaning string `json:"meaning"`
	CDPPort *int   `json:"cdp_port"`
}

// vsCodePort is the variable in which children find VS Code itself, if it can be debugged.
func vsCodePort() []string {
	if port := findVSCode(os.Getenv).CDPPort; port != nil {
		return []string{"VSCODE_CDP_PORT=" + strconv.Itoa(*port)}
	}
	return nil
}

// findVSCode looks for VS Code, where it says itself that it is.
func findVSCode(getenv func(string) string) vsCode {
	there := getenv("TERM_PROGRAM") == "vscode"
	for _, name := range []string{"VSCODE_INJECTION", "VSCODE_PID", "VSCODE_CWD"} {
		there = there || getenv(name) != ""
	}
	if !there {
		return vsCode{Tier: "standard", Meaning: "bmcp was not started by VS Code"}
	}
	port := getenv("VSCODE_CDP_PORT")
	if port == "" {
		b, _ := os.ReadFile(filepath.Join(os.TempDir(), "vscode-cdp-port"))
		port = strings.TrimSpace(string(b))
	}
	if pid, err := strconv.Atoi(getenv("VSCODE_PID")); port == "" && err == nil {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		for _, a := range strings.Split(string(b), "\x00") {
			if v, ok := strings.CutPrefix(a, "--remote-debugging-port="); ok {
				port = v
			}
		}
	}
	if n, err := strconv.Atoi(port); err == nil && n > 0 && n < 65536 {
		return vsCode{Tier: "2", Meaning: "VS Code itself can be debugged at cdp_port, " +
			"which children find in VSCODE_CDP_PORT; the browser tools do not use it", CDPPort: &n}
	}
	return vsCode{Tier: "1", Meaning: "bmcp was started by VS Code, whose own preview can't be reached: " +
		"the browser tools use another browser"}
}
