//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"btools/lib/tools/tasks"
)

// playwrightMCP is the command of @playwright/mcp with a browser of its own.
func playwrightMCP(args ...string) []string {
	return append([]string{abs("../clients/node_modules/@playwright/mcp/cli.js"), "--headless", "--no-sandbox",
		"--isolated", "--executable-path", "/usr/bin/chromium"}, args...)
}

// builtinMCP is the command of bmcp with its own tools.
func builtinMCP(args ...string) []string {
	return append([]string{abs(bin + "bmcp"), "--mcp", "builtin"}, args...)
}

// solveTasks has both servers solve the tasks, or those that are named, and
// says why one was not solved.
func solveTasks() {
	suite := tasks.All()
	if names := os.Args[min(2, len(os.Args)):]; len(names) > 0 {
		suite = slices.DeleteFunc(suite, func(t tasks.Task) bool { return !slices.Contains(names, t.Name) })
	}
	site := tasks.Serve()
	defer site.Close()
	theirs, took := solvedBy(site, suite, playwrightMCP())
	row(fmt.Sprintf("%d tasks: solved by @playwright/mcp; time", len(suite)),
		fmt.Sprintf("%d, %.0f s", len(theirs), took.Seconds()), "")
	ours, took := solvedBy(site, suite, builtinMCP())
	row("the same: by builtin; time", fmt.Sprintf("%d, %.0f s", len(ours), took.Seconds()), "")
	missed := 0
	for name := range theirs {
		if !ours[name] {
			missed++
		}
	}
	row("the same: solved by @playwright/mcp, not by builtin", fmt.Sprint(missed), "0")
}

// maxTask is how long a server has for a task.
const maxTask = time.Minute

// solvedBy solves tasks one after the other. A server that ends or hangs is
// replaced.
func solvedBy(site *tasks.Site, suite []tasks.Task, argv []string) (solved map[string]bool, took time.Duration) {
	solved = map[string]bool{}
	var h *mcpHost
	for _, t := range suite {
		if h == nil {
			h = mcpServer([]string{"HOME=" + dir}, argv[0], argv[1:]...)
		}
		began := time.Now()
		server := h.cmd.Process
		limit := time.AfterFunc(maxTask, func() { server.Kill() })
		err := site.Solve(t, h.result, dir)
		if err == nil {
			solved[t.Name] = true
			_, err = h.result("browser_tabs", `{"action":"new"}`) // without a tab the browser would end
			_, err2 := h.result("browser_tabs", `{"action":"close","index":0}`)
			err = errors.Join(err, err2)
		}
		took += time.Since(began)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: task %s (%s) %v\n", filepath.Base(argv[0]), t.Name, t.About, err)
			h.stop() // what it has open is not for the next task
			h = nil
		}
		limit.Stop()
	}
	if h != nil {
		h.stop()
	}
	return solved, took
}

// result is that of a call of a tool.
func (h *mcpHost) result(name, args string) (r json.RawMessage, err error) {
	defer func() {
		if e := recover(); e != nil {
			err = fmt.Errorf("the server has ended: %v", e)
		}
	}()
	var m struct {
		Result json.RawMessage
		Error  *struct{ Message string }
	}
	if err := json.Unmarshal(h.tool(name, args), &m); err != nil {
		return nil, err
	}
	if m.Error != nil {
		return nil, errors.New(m.Error.Message)
	}
	return m.Result, nil
}
