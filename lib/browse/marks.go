package browse

import (
	"context"
	"strconv"
	"strings"

	"btools/lib/lazy"
)

// Mark is an element to act on in a picture, in pixels of it.
type Mark struct {
	Ref, Line        string // its line in a snapshot
	X, Y, Wide, High int
}

// markedLine is the line of an element with a ref and a box.
var markedLine = lazy.Regexp(`^(- .*\[ref=((?:f(\d+))?e\d+)\]) \[box=(-?\d+),(-?\d+),(\d+),(\d+)\](: .*)?$`)

// marks are the elements to act on in a part of the document, of which a picture has so many pixels for one of CSS.
func (t *pictures) marks(ctx context.Context, part area, scale float64) (all []Mark, err error) {
	text, err := t.Snapshot(ctx, SnapshotOptions{Interactive: true, Boxes: true})
	if err != nil {
		return nil, err
	}
	v, err := t.viewport(ctx, false)
	if err != nil {
		return nil, err
	}
	origins := map[string]Point{"": {}} // of frames in the viewport, by number
	for line := range strings.Lines(text) {
		m := markedLine().FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		origin, known := origins[m[3]]
		if n, _ := strconv.Atoi(m[3]); !known && n > 0 {
			f := t.b.refs.numbered(n)
			if f == nil || f.tab != t.frames {
				continue
			}
			if origin.X, origin.Y, err = f.origin(ctx); err != nil {
				continue // it has gone, or is not seen
			}
			origins[m[3]] = origin
		}
		var box [4]float64
		for i := range box {
			box[i], _ = strconv.ParseFloat(m[4+i], 64)
		}
		x, y := box[0]+origin.X+v.X-part.X, box[1]+origin.Y+v.Y-part.Y
		if box[2] < 1 || box[3] < 1 || x+box[2] <= 0 || y+box[3] <= 0 || x >= part.Width || y >= part.Height {
			continue
		}
		all = append(all, Mark{m[2], m[1] + m[8], int(x * scale), int(y * scale), int(box[2] * scale),
			int(box[3] * scale)})
	}
	return all, nil
}
