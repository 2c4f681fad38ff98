package command

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"btools/lib/agent/toolline"
	"btools/lib/cli"
	"btools/lib/tools"
)

// skillText is the skill, with {{tools}} in the place of the tools.
//
//go:embed skill.md
var skillText string

// skillName is the skill's name, and so that of its directory, as the format of skills has it.
const skillName = "btools"

// Skill prints what a coding agent is to know of call, or puts it where agents look for it.
func Skill(c *cli.Context) error {
	text := strings.Replace(skillText, "{{tools}}\n", toolline.List(tools.List(nil), 0), 1)
	dir := c.String("install")
	if dir == "" {
		if _, err := c.Stdout.WriteString(text); err != nil {
			return fmt.Errorf("cannot write the result: %w", err)
		}
		return nil
	}
	path := filepath.Join(dir, skillName, "SKILL.md")
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = replaceFile(path, []byte(text), 0o644)
	}
	if err != nil {
		return fmt.Errorf("cannot install the skill: %w", err)
	}
	if _, err := fmt.Fprintln(c.Stdout, path); err != nil {
		return fmt.Errorf("cannot write the result: %w", err)
	}
	return nil
}
