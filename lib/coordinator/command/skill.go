package command

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"btools/lib/agent/toolline"
	"btools/lib/cli"
	"btools/lib/coordinator"
	"btools/lib/exit"
	"btools/lib/jsonrpc"
	"btools/lib/tools"
)

// skillText is the skill, with {{tools}} in the place of the tools, and {{more}} in that of the names of others.
//
//go:embed skill.md
var skillText string

// skillName is the skill's name, and so that of its directory, as the format of skills has it.
const skillName = "btools"

// rare are the tools that the skill only names, with those of groups.
var rare = []string{"drop", "page_tools", "network_request", "emulate_media", "resize", "select_element"}

// Skill prints what a coding agent is to know of call, or puts it where agents look for it.
func Skill(c *cli.Context) error {
	listed, more := tools.List(nil), slices.Clone(rare)
	listed = slices.DeleteFunc(listed, func(tool json.RawMessage) bool {
		return slices.Contains(rare, strings.TrimPrefix(jsonrpc.GetString(tool, "name"), "browser_"))
	})
	for _, group := range tools.Groups() {
		names, _ := tools.Names(group) // which is one
		for _, name := range names {
			if tools.GroupOf(name) == group {
				more = append(more, strings.TrimPrefix(name, "browser_"))
			}
		}
	}
	text := strings.NewReplacer("{{more}}", strings.Join(more, ", "),
		"{{tools}}\n", toolline.List(slices.Concat(listed, coordinator.ListReaders()), 0)).Replace(skillText)
	dir := c.String("install")
	if dir == "" {
		if _, err := c.Stdout.WriteString(text); err != nil {
			return fmt.Errorf("cannot write the result: %w", err)
		}
		return nil
	}
	path := filepath.Join(dir, skillName, "SKILL.md")
	if err := installSkill(path, text); err != nil {
		return fmt.Errorf("cannot install the skill: %w", err)
	}
	if _, err := fmt.Fprintln(c.Stdout, path); err != nil {
		return fmt.Errorf("cannot write the result: %w", err)
	}
	return nil
}

// installSkill writes the skill to a file, which must be an earlier version of it or missing.
func installSkill(path, text string) error {
	path, err := linked(path)
	if err != nil {
		return err
	}
	head, _, _ := strings.Cut(text, "description:") // the format's own line, and the name
	before, err := os.ReadFile(path)
	if err == nil && !strings.HasPrefix(string(before), head) {
		return &exit.Error{Code: exit.Data, Err: fmt.Errorf("%s is another skill, and stays as it is", path),
			Hint: "give --install another directory"}
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return replaceFile(path, []byte(text), 0o644)
}
