package browse

import (
	"context"
	"strings"
)

// HTML is the page, or one element of it, as HTML that has what is shown: shadow
// roots, slots and frames in place, without scripts and hidden parts, with whole
// addresses.
func (t *elements) HTML(ctx context.Context, target Target) (string, error) {
	parts, err := t.written(ctx, "html", target, nil)
	return strings.Join(parts, ""), err
}

// DOM is the tree of the document, or of one element, a line for each element. A
// depth leaves out what is deeper, and frames.
func (t *elements) DOM(ctx context.Context, target Target, depth *int) (string, error) {
	lines, err := t.written(ctx, "dom", target, depth)
	return strings.Join(lines, "\n"), err
}

func (t *elements) written(ctx context.Context, script string, target Target, depth *int) ([]string, error) {
	if err := t.gone(); err != nil {
		return nil, err
	}
	f, args := t.mainFrame(), map[string]any{}
	if target != "" {
		p, err := t.Locate(ctx, target)
		if err != nil {
			return nil, err
		}
		f, args["target"] = p.Frame, p.Find
	}
	if depth != nil {
		args["depth"] = *depth
	}
	return t.outline(ctx, f, script, args, 0)
}
