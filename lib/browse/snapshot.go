package browse

import (
	"context"
	"slices"
	"strings"
	"time"
)

// SnapshotOptions say what a snapshot has.
type SnapshotOptions struct {
	Target Target // "": the whole page
	Depth  *int   // nil: all of it
	Boxes  bool   // where the elements are
}

// snapshotTime is for how long a document is looked at; what it has more is left out.
const snapshotTime = 5 * time.Second

// maxFrames bounds how deep frames in frames are shown.
const maxFrames = 8

// Snapshot is what an agent has to know of the page: an indented outline of roles,
// names, states and refs.
func (t *Tab) Snapshot(ctx context.Context, o SnapshotOptions) (string, error) {
	f, args := t.mainFrame(), map[string]any{"boxes": o.Boxes}
	if o.Target != "" {
		p, err := t.locate(ctx, o.Target)
		if err != nil {
			return "", err
		}
		f, args["target"] = p.frame, p.find
	}
	if o.Depth != nil {
		args["depth"] = *o.Depth
	}
	lines, err := t.outline(ctx, f, "snapshot", args, 0)
	if err != nil {
		return "", err
	}
	return strings.Join(lines, "\n"), nil
}

// outline is what a script writes of a frame, and of those in it, in lines.
func (t *Tab) outline(ctx context.Context, f *frame, script string, args map[string]any, depth int) ([]string, error) {
	b := t.b
	b.mu.Lock()
	args["next"] = b.nextRef
	b.mu.Unlock()
	args["prefix"], args["ms"] = f.prefix(), snapshotTime.Milliseconds()
	var got struct {
		Lines  []string
		Frames []struct {
			Line, Depth int
			Number      int
		}
		Next  int
		IsCut bool
	}
	if err := t.run(ctx, f, script, args, &got); err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.nextRef = max(b.nextRef, got.Next)
	b.mu.Unlock()
	lines := got.Lines
	if got.IsCut {
		lines = append(lines, "# the rest is left out, for the page has too many elements: browser_snapshot with a "+
			"target shows a part of it")
	}
	if depth == maxFrames || args["depth"] != nil {
		return lines, nil
	}
	for _, in := range slices.Backward(got.Frames) { // the last first: lines before it stay where they are
		inner, err := f.inner(ctx, in.Number)
		if err != nil && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if inner == nil {
			continue
		}
		more, err := t.outline(ctx, inner, script, map[string]any{"boxes": args["boxes"]}, depth+1)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil || len(more) == 0 {
			continue // the frame has gone
		}
		pad := strings.Repeat("  ", in.Depth)
		for i := range more {
			more[i] = pad + more[i]
		}
		if script == "snapshot" && !strings.HasSuffix(lines[in.Line], ":") {
			lines[in.Line] += ":"
		}
		lines = slices.Insert(lines, in.Line+1, more...)
	}
	return lines, nil
}
