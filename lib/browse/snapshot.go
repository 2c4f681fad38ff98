package browse

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// SnapshotOptions say what a snapshot has.
type SnapshotOptions struct {
	Target Target // "": the whole page
	Depth  *int   // nil: all of it
	Boxes  bool   // where the elements are
	Whole  bool   // long texts are not shortened, and more time is taken: it is for a search
	// Interactive leaves out all but the elements to act on, which are at one level, and frames.
	Interactive bool
	Headings    bool // these have headings, too
}

// Times for which a document is looked at; what it has more is left out.
const (
	snapshotTime = 5 * time.Second
	searchTime   = 10 * time.Second
)

// maxFrames bounds how deep frames in frames are shown.
const maxFrames = 8

// Snapshot is what an agent has to know of the page: an indented outline of roles,
// names, states and refs.
func (e *Elements[F]) Snapshot(ctx context.Context, o SnapshotOptions) (string, error) {
	f, args := e.on.Main(), map[string]any{"boxes": o.Boxes, "whole": o.Whole, "joined": true,
		"interactive": o.Interactive, "headings": o.Headings}
	if o.Target != "" {
		p, err := e.Locate(ctx, o.Target)
		if err != nil {
			return "", err
		}
		f, args["target"] = p.Frame, p.Find
	}
	if o.Depth != nil {
		args["depth"] = *o.Depth
	}
	lines, err := e.outline(ctx, f, "snapshot", args, 0)
	return strings.Join(lines, "\n"), err
}

// cutMark begins the line of a snapshot that says where it ends too early.
const cutMark = "# the rest is left out"

// cutLine is the line of a snapshot that ends after so many elements.
func cutLine(elements int) string {
	return fmt.Sprintf("%s after %d elements, for the page has too many: browser_snapshot with a target shows a "+
		"part of it", cutMark, elements)
}

// Cuts are what a snapshot says of the parts that it leaves out.
func Cuts(snapshot string) (all []string) {
	for line := range strings.SplitSeq(snapshot, "\n") {
		if rest, ok := strings.CutPrefix(strings.TrimLeft(line, " "), cutMark); ok {
			all = append(all, "The page was not searched to its end: the rest was left out"+rest)
		}
	}
	return all
}

// Holding are the elements that hold a text that is visible, though it runs over what
// is in them: a line for each, in all frames.
func (e *Elements[F]) Holding(ctx context.Context, text string) ([]string, error) {
	return e.outline(ctx, e.on.Main(), "holding", map[string]any{"want": text}, 0)
}

// outline is what a script writes of a frame, and of those in it, in lines.
func (e *Elements[F]) outline(ctx context.Context, f F, script string, args map[string]any, depth int) ([]string,
	error) {
	note := e.on.Noting()
	args["next"], args["prefix"], args["ms"] = e.on.Refs.number(), e.on.Refs.prefix(f), snapshotTime.Milliseconds()
	if args["whole"] == true {
		args["ms"] = searchTime.Milliseconds()
	}
	var got struct {
		Lines  []string
		Frames []struct{ Line, Depth, Number int }
		Next   int
		Cut    int // the number of elements after which the rest is left out; 0: none is
		Page   *Shown
	}
	if err := e.on.Run(ctx, f, script, args, &got); err != nil {
		return nil, err
	}
	e.on.Refs.used(got.Next)
	var none F
	if got.Page != nil && f.Around() == none {
		note(*got.Page)
	}
	lines := got.Lines
	if args["joined"] == true && len(lines) > 0 {
		lines = strings.Split(lines[0], "\n")
	}
	if got.Cut > 0 {
		lines = append(lines, cutLine(got.Cut))
	}
	if depth == maxFrames || args["depth"] != nil {
		return lines, nil
	}
	for _, in := range slices.Backward(got.Frames) { // the last first: lines before it stay where they are
		inner, err := f.Inner(ctx, in.Number)
		if err != nil && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if inner == none {
			continue
		}
		same := maps.Clone(args)
		delete(same, "target")
		var more []string
		isMute := inner.Mute()
		if !isMute {
			more, err = e.outline(ctx, inner, script, same, depth+1)
			_, isMute = errors.AsType[FrameError](err)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if isMute && script == "snapshot" {
			lines[in.Line] += " # does not answer: a script of it runs without end"
		}
		if err != nil || len(more) == 0 {
			continue // the frame has gone
		}
		pad := strings.Repeat("  ", in.Depth)
		for i := range more {
			more[i] = pad + more[i]
		}
		if in.Depth > 0 && !strings.HasSuffix(lines[in.Line], ":") {
			lines[in.Line] += ":"
		}
		lines = slices.Insert(lines, in.Line+1, more...)
	}
	return lines, nil
}
