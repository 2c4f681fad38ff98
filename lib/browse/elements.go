package browse

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Frame is a document's place, as one kind of browser reaches it: a tab, or a frame in one. The zero value is none.
type Frame[F any] interface {
	comparable
	Same(other F) bool
	Around() F
	Inner(ctx context.Context, number int) (F, error) // the frame in an iframe with a number
	Mute() bool                                       // it has not answered the latest question
}

// Engine is what Elements need of one kind of browser.
type Engine[F Frame[F]] struct {
	Refs *Refs[F]
	Of   func(bound time.Duration) time.Duration // in the browser's seconds
	Gone func() error                            // why nothing can be done with the page; nil: it can

	Main    func() F
	All     func(ctx context.Context) ([]F, error) // outer ones first
	Has     func(f F) bool                         // a frame is one of the page
	Run     func(ctx context.Context, f F, script string, args map[string]any, result any) error
	Passing func(err error) bool                            // an error says that the page is being replaced
	Caused  func(err error) bool                            // an error only says what an action has caused
	Watch   func() (settle func(ctx context.Context) error) // waits for what is caused from now on

	// Noting returns what keeps what the page says of itself, unless it is another one by then.
	Noting func() func(now Shown)
	// At returns where a point of a frame is, as Clicks and Hover take it; nil: it is the same.
	At     func(ctx context.Context, f F, in Point) (Point, error)
	Clicks func(o ClickOptions) (click func(ctx context.Context, f Found[F]) error, err error)
	Hover  func(ctx context.Context, f Found[F]) error

	Fill      func(ctx context.Context, f Found[F], text, origin string) error // in a document of that origin; "": any
	TypeKeys  func(ctx context.Context, f F, text string) error                // as long as the field has the focus
	EndTyping func(f F)                                                        // keys reach all elements again
}

// Shown is what a page says of itself.
type Shown struct {
	URL, Title string
	Status     int // of HTTP, by which the document came; 0: it is not known
}

// FrameError is that of a frame which does not answer.
type FrameError string

func (e FrameError) Error() string { return string(e) }

// Refs are the names that snapshots have given to elements and frames, in all tabs.
type Refs[F Frame[F]] struct {
	mu     *sync.Mutex
	frames []F // that have had a number, from 1
	next   int // number of an element
}

// NewRefs returns refs that a lock guards.
func NewRefs[F Frame[F]](mu *sync.Mutex) Refs[F] { return Refs[F]{mu: mu, next: 1} }

// prefix is what the refs of a frame begin with, which gets a number; "": it is a page itself.
func (r *Refs[F]) prefix(f F) string {
	var none F
	if f.Around() == none {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.frames, func(old F) bool { return old != none && old.Same(f) })
	if i < 0 {
		i = len(r.frames)
		r.frames = append(r.frames, f)
	}
	r.frames[i] = f
	return "f" + strconv.Itoa(i+1)
}

// numbered returns the frame with a number; none: there is none.
func (r *Refs[F]) numbered(n int) (f F) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > 0 && n <= len(r.frames) {
		f = r.frames[n-1]
	}
	return f
}

// number returns the number of the next element.
func (r *Refs[F]) number() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next
}

// used notes that the numbers before next are given.
func (r *Refs[F]) used(next int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = max(r.next, next)
}

// Elements are what an agent sees of a page, and acts on.
type Elements[F Frame[F]] struct{ on Engine[F] }

// NewElements returns the elements of a page.
func NewElements[F Frame[F]](on Engine[F]) Elements[F] { return Elements[F]{on} }

// Place is an element's frame, and how our scripts find it there: by the number of a ref or by a selector.
type Place[F Frame[F]] struct {
	Frame F
	Find  any
}

// Locate finds the frame of a target. It waits until a selector matches something.
func (e *Elements[F]) Locate(ctx context.Context, target Target) (p Place[F], err error) {
	if frame, n, ok := target.Ref(); ok {
		f := e.on.Refs.numbered(frame)
		switch {
		case n >= e.on.Refs.number():
			return p, fmt.Errorf("there is no ref %s: take a new browser_snapshot", target)
		case frame == 0:
			return Place[F]{e.on.Main(), n}, nil
		case !e.on.Has(f):
			return p, fmt.Errorf("there is no ref %s in this tab: take a new browser_snapshot", target)
		}
		return Place[F]{f, n}, nil
	}
	end := time.Now().Add(e.on.Of(ActionTimeout))
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		f, ok, err := e.first(ctx, "count", map[string]any{"target": string(target)})
		switch late := time.Now().After(end); {
		case ok:
			return Place[F]{f, string(target)}, nil
		case err != nil && (late || !e.on.Passing(err)):
			return p, err
		case late:
			return p, fmt.Errorf("nothing matches %q: within %v no element appeared", target, e.on.Of(ActionTimeout))
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return p, context.Cause(ctx)
		}
	}
}

// first returns the first frame of which a function of our scripts says something else than 0 or false. A frame that
// does not answer has nothing.
func (e *Elements[F]) first(ctx context.Context, script string, args map[string]any) (found F, ok bool, err error) {
	all, err := e.on.All(ctx)
	for i, f := range all {
		if i > 0 && f.Mute() {
			continue
		}
		var got any
		err := e.on.Run(ctx, f, script, args, &got)
		if err == nil && got != 0.0 && got != false {
			return f, true, nil
		}
		if err != nil && (i == 0 || ctx.Err() != nil) {
			return found, false, err
		}
	}
	return found, false, err
}

// needs are the conditions that an element has to meet before it is acted on.
type needs struct {
	Point    bool `json:"point"`    // it is in the viewport and does not move
	Hit      bool `json:"hit"`      // nothing covers it
	Enabled  bool `json:"enabled"`  // it is not disabled
	Editable bool `json:"editable"` // it takes text
	Watch    bool `json:"watch"`    // if it moves, only it is to get the press that follows
}

var (
	forClick = needs{Point: true, Hit: true, Enabled: true, Watch: true}
	forDrag  = needs{Point: true, Hit: true, Enabled: true}
	forHover = needs{Point: true, Hit: true}
	forDrop  = needs{Point: true}
	forFocus = needs{Enabled: true}
	forFill  = needs{Enabled: true, Editable: true}
)

// Point is a place in a viewport, in CSS pixels.
type Point struct{ X, Y float64 }

// Found is an element that is ready.
type Found[F Frame[F]] struct {
	Place[F]
	At      Point // as input takes it
	InFrame Point
	What    string // as results name it

	Moves     bool // and does not stop
	Downloads bool // it is a link to a file
	Canvas    bool // whose picture can be compared
}

// Ready waits until a target meets conditions.
func (e *Elements[F]) Ready(ctx context.Context, target Target, n needs) (found Found[F], err error) {
	if err := e.on.Gone(); err != nil {
		return found, err
	}
	end := time.Now().Add(e.on.Of(ActionTimeout))
	p, err := e.Locate(ctx, target)
	if err != nil {
		return found, err
	}
	f := struct {
		Found[F]
		X, Y  float64
		Frame int // its number in the frame around it; -1: none
	}{}
	left := max(time.Until(end), e.on.Of(500*time.Millisecond))
	err = e.on.Run(ctx, p.Frame, "ready", map[string]any{"target": p.Find, "needs": n, "ms": left.Milliseconds()}, &f)
	if err == nil && (n.Point || n.Enabled) {
		err = e.usable(ctx, p.Frame, f.Frame)
	}
	f.Place, f.InFrame, f.At = p, Point{f.X, f.Y}, Point{f.X, f.Y}
	if err == nil && n.Point && e.on.At != nil {
		f.Found.At, err = e.on.At(ctx, p.Frame, f.InFrame)
	}
	if err != nil {
		return found, fmt.Errorf("%s: %w", target, err)
	}
	return f.Found, nil
}

// usable returns an error if a frame, which has a number in the one around it, is inert.
func (e *Elements[F]) usable(ctx context.Context, f F, number int) error {
	var none F
	for around := f.Around(); around != none && number >= 0; around = around.Around() {
		err := e.on.Run(ctx, around, "usableFrame", map[string]any{"number": number}, &number)
		if err != nil {
			return fmt.Errorf("its %w", err)
		}
	}
	return nil
}

// ClickOptions say how to click.
type ClickOptions struct {
	Button    string // left, right or middle; "": left
	Double    bool
	Modifiers []string
}

// Click clicks an element, and returns how results name it.
func (e *Elements[F]) Click(ctx context.Context, target Target, o ClickOptions) (string, error) {
	click, err := e.on.Clicks(o)
	if err != nil {
		return "", err
	}
	for end := time.Now().Add(e.on.Of(ActionTimeout)); ; {
		f, err := e.Ready(ctx, target, forClick)
		if err != nil {
			return "", err
		}
		if err := click(ctx, f); err != nil {
			return f.What, err
		}
		hit := ""
		if f.Moves && e.on.Run(ctx, f.Frame, "missed", nil, &hit) == nil && hit != "" {
			if time.Now().Before(end) {
				continue
			}
			return f.What, fmt.Errorf("%s moves: the clicks hit %s, and were kept from it", f.What, hit)
		}
		drew := false
		if f.Canvas && !f.Downloads && e.on.Run(ctx, f.Frame, "drew", nil, &drew) == nil && drew {
			f.What += ", whose picture has changed"
		}
		return f.What, nil
	}
}

// Hover moves the mouse over an element.
func (e *Elements[F]) Hover(ctx context.Context, target Target) (string, error) {
	f, err := e.Ready(ctx, target, forHover)
	if err != nil {
		return "", err
	}
	return f.What, e.on.Hover(ctx, f)
}

// Scroll scrolls.
func (e *Elements[F]) Scroll(ctx context.Context, o ScrollOptions) (s Scrolled, err error) {
	p, settle := Place[F]{Frame: e.on.Main()}, e.on.Watch()
	if o.Target != "" {
		ready, err := e.Ready(ctx, o.Target, needs{})
		if err != nil {
			return s, err
		}
		p = ready.Place
	}
	if err = e.on.Run(ctx, p.Frame, "scroll", o.arguments(p.Find), &s); err != nil {
		return s, err
	}
	return s, settle(ctx)
}

// Choose chooses options of a select, by label or value, and returns the labels.
func (e *Elements[F]) Choose(ctx context.Context, target Target, values []string) (what string, labels []string,
	err error) {
	f, err := e.Ready(ctx, target, forFocus)
	if err != nil {
		return "", nil, err
	}
	settle := e.on.Watch()
	err = e.on.Run(ctx, f.Frame, "choose", map[string]any{"target": f.Find, "values": values}, &labels)
	if err != nil && !e.on.Caused(err) {
		return "", nil, err
	}
	return f.What, labels, settle(ctx)
}

// Check checks or clears a checkbox or a radio button.
func (e *Elements[F]) Check(ctx context.Context, target Target, on bool) (string, error) {
	f, err := e.Ready(ctx, target, forFocus)
	if err != nil {
		return "", err
	}
	var is bool
	state := func() error { return e.on.Run(ctx, f.Frame, "checked", map[string]any{"target": f.Find}, &is) }
	if err := state(); err != nil || is == on {
		return f.What, err
	}
	if _, err := e.Click(ctx, target, ClickOptions{}); err != nil {
		return f.What, err
	}
	if state() == nil && is != on { // else the click has led elsewhere
		return f.What, fmt.Errorf("%s was clicked, and is as it was before", f.What)
	}
	return f.What, nil
}

// HasText reports whether a text is visible in the page.
func (e *Elements[F]) HasText(ctx context.Context, text string) (bool, error) {
	_, ok, err := e.first(ctx, "hasText", map[string]any{"want": text})
	return ok, err
}

// AwaitText waits until a text is visible in the page, or, if not wanted, until it is not.
func (e *Elements[F]) AwaitText(ctx context.Context, text string, wanted bool, most time.Duration) error {
	end := time.Now().Add(most)
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		if err := e.on.Gone(); err != nil {
			return err
		}
		seen, err := e.HasText(ctx, text)
		if err != nil && !e.on.Passing(err) {
			return err
		}
		if err == nil && seen == wanted {
			return nil
		}
		if time.Now().After(end) {
			var leaving *leavingError
			if errors.As(err, &leaving) {
				return fmt.Errorf("the text %q is not known: after %v %s", text, most, leaving.fact())
			}
			if wanted {
				return fmt.Errorf("the text %q did not appear within %v", text, most)
			}
			return fmt.Errorf("the text %q was still there after %v", text, most)
		}
		select {
		case <-time.After(min(pause, time.Until(end))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
