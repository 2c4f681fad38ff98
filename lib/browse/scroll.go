package browse

import "fmt"

// ScrollOptions say how to scroll.
type ScrollOptions struct {
	Target    Target // "": the page, or what scrolls in its middle
	Direction string // up, down, left, right, top, bottom; "": until the target is in view
	Pixels    *int   // nil: most of what is seen
}

// Scrolled is what has come of scrolling.
type Scrolled struct {
	What           string
	Seen           bool // the target is in view
	From, At, Room int  // pixels from the beginning, before and after, and the most of them
}

// arguments are those of the script that scrolls. Find is what it finds the target by, nil for none.
func (o *ScrollOptions) arguments(find any) map[string]any {
	args := map[string]any{}
	if find != nil {
		args["target"] = find
	}
	if o.Direction != "" {
		args["direction"] = o.Direction
	}
	if o.Pixels != nil {
		args["pixels"] = *o.Pixels
	}
	return args
}

// Sentence says what has come of scrolling in a direction.
func (s Scrolled) Sentence(direction string) string {
	switch {
	case direction == "" && s.Seen:
		return "Scrolled to " + s.What
	case direction == "":
		return s.What + " is not in view after scrolling to it: it has no size, or is cut off"
	case s.From == s.At && s.Room == 0:
		return "Nothing has scrolled: " + s.What + " has no more than is seen"
	case s.From == s.At:
		return fmt.Sprintf("Nothing has scrolled: %s is at %d of %d pixels", s.What, s.At, s.Room)
	}
	return fmt.Sprintf("Scrolled %s by %d pixels, to %d of %d", s.What, max(s.At-s.From, s.From-s.At), s.At, s.Room)
}
