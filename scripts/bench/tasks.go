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
	"unicode/utf8"

	"btools/lib/tools/tasks"
)

// solveTasks has both servers solve the tasks, or those that are named, and
// says why one was not solved.
func solveTasks(b *bench) {
	suite := tasks.All()
	if names := os.Args[min(2, len(os.Args)):]; len(names) > 0 {
		suite = slices.DeleteFunc(suite, func(t tasks.Task) bool { return !slices.Contains(names, t.Name) })
	}
	site := tasks.Serve()
	b.atEnd(site.Close)
	theirs, took, theirText := b.solvedBy(site, suite, playwrightMCP())
	row(fmt.Sprintf("%d tasks: solved by @playwright/mcp; time", len(suite)), "", "%d, %.0f s", len(theirs),
		took.Seconds())
	ours, took, ourText := b.solvedBy(site, suite, builtinMCP())
	row("the same: by builtin; time", "", "%d, %.0f s", len(ours), took.Seconds())
	row("the same: characters of the results: builtin, theirs", "", "%d, %d", ourText, theirText)
	row("the same: builtin ÷ @playwright/mcp", "≤ 1", "%.2f", float64(ourText)/float64(theirText))
	missed := 0
	for name := range theirs {
		if !ours[name] {
			missed++
		}
	}
	row("the same: solved by @playwright/mcp, not by builtin", "0", "%d", missed)
}

// maxTask is how long a server has for a task.
const maxTask = time.Minute

// solvedBy solves tasks one after the other, and counts the characters of the results. A server that ends or hangs is
// replaced.
func (b *bench) solvedBy(site *tasks.Site, suite []tasks.Task, argv []string) (solved map[string]bool,
	took time.Duration, characters int) {
	solved = map[string]bool{}
	var h *host
	for _, t := range suite {
		if h == nil {
			h = b.host(argv)
		}
		began := time.Now()
		server := h.Process
		limit := time.AfterFunc(maxTask, func() { server.Kill() })
		err := site.Solve(t, func(name, args string) (json.RawMessage, error) {
			r, err := h.result(name, args)
			var got struct{ Content []struct{ Text string } }
			json.Unmarshal(r, &got) // else there is no text
			for _, c := range got.Content {
				characters += utf8.RuneCountInString(c.Text)
			}
			return r, err
		}, dir)
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
	return solved, took, characters
}
