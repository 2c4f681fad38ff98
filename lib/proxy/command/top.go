package command

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"btools/lib/cli"
	"btools/lib/control/api"
	"btools/lib/lifetime"
	"btools/lib/record"
	"btools/lib/terminal"
	"btools/lib/terminal/picture"
	"btools/lib/terminal/screen"
)

// Top shows the sessions of all programs on the terminal, or without one prints them, a line a second.
func Top(c *cli.Context) error {
	ctx, stop, _ := lifetime.Context()
	defer stop(nil)
	rows := topRows{store: c.State(), changed: make(chan struct{}, 1), run: func(f func()) { go f() }, guard: func() {}}
	defer rows.work.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	if c.String("output") == "json" || !terminal.Is(c.Stdout) || c.Getenv("TERM") == "dumb" {
		return rows.print(ctx, c)
	}
	s, err := screen.Open(c.Stdin, c.Stdout)
	if err != nil {
		return err
	}
	defer s.Close()
	rows.run, rows.guard = s.Go, s.Guard
	t := &top{topRows: &rows, c: c, screen: s, colors: c.Getenv("NO_COLOR") == "", kitty: make(chan struct{}),
		number: 1<<20 + os.Getpid()}
	return t.show(ctx)
}

// topSession is a session in a line of JSON.
type topSession struct {
	Key         string       `json:"key"`
	Name        string       `json:"name"`
	Program     string       `json:"program"`
	Holder      string       `json:"holder"`
	Kind        string       `json:"kind"`
	Control     *api.Control `json:"control,omitempty"`
	Ask         *api.Ask     `json:"ask,omitempty"`
	TabCount    int          `json:"tab_count"`
	IdleSeconds *int         `json:"idle_seconds,omitempty"` // nil: not known
	Hibernated  bool         `json:"hibernated,omitempty"`
	Title       string       `json:"title"`
	URL         string       `json:"url"`
	Command     *topCommand  `json:"command,omitempty"` // the last one; nil: none since top has run
	Why         string       `json:"why,omitempty"`     // title and URL are not known
}

// print prints a line a second until its reader is gone.
func (t *topRows) print(ctx context.Context, c *cli.Context) error {
	tick := time.NewTicker(topEvery)
	defer tick.Stop()
	for first := true; ; first = false {
		t.list(ctx)
		t.mu.Lock()
		err := t.err
		t.see(ctx, t.all)
		t.mu.Unlock()
		if err != nil {
			return err
		}
		for late := false; first && !late && !t.areKnown(); {
			select {
			case <-t.changed:
			case <-tick.C:
				late = true
			case <-ctx.Done():
				return nil
			}
		}
		b, err := t.line()
		if terminal.Is(c.Stdout) {
			b = terminal.EscapeJSON(b)
		}
		if err == nil {
			_, err = c.Stdout.Write(append(b, '\n'))
		}
		if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// areKnown reports whether all sessions with a connection have told their pages.
func (t *topRows) areKnown() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !slices.ContainsFunc(t.all[:min(len(t.all), topMost)], func(r *topRow) bool { return !r.isKnown })
}

// line returns the sessions as JSON.
func (t *topRows) line() ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := struct {
		V        int          `json:"v"`
		At       record.Time  `json:"at"`
		Sessions []topSession `json:"sessions"`
	}{1, record.Now(), []topSession{}}
	for _, r := range t.all {
		s := topSession{r.Key, r.Name, r.Program, r.Holder, r.Kind, r.Control, r.Ask, r.Tabs, nil, r.Hibernated,
			r.title, r.url, r.did, r.reason()}
		if r.Idle >= 0 {
			s.IdleSeconds = &r.Idle
		}
		out.Sessions = append(out.Sessions, s)
	}
	return json.Marshal(out)
}

// top shows the rows on a terminal.
type top struct {
	*topRows
	c      *cli.Context
	screen *screen.Screen
	colors bool

	shown       []*topRow // that pass the filter
	selected    string    // its key
	at, first   int       // places of the selected row and of the first on the screen
	filter      string
	isFiltering bool               // keys change the filter
	message     string             // of the last key
	isKitty     bool               // the terminal shows pictures
	kitty       chan struct{}      // closed when it has said so
	watched     *topRow            // the picture of which is shown; nil: the list is
	unwatch     context.CancelFunc // ends what takes pictures of it
	number      int                // of the picture on the terminal, where others may have some
	png         []byte
	noPicture   string      // why there is none
	picture     string      // as the terminal gets it
	placed      screen.Size // for which that is; zero: it is another one
}

// show shows the sessions until the person has enough, the terminal is gone or the context ends.
func (t *top) show(ctx context.Context) error {
	const pause = 100 * time.Millisecond // between what changes by itself
	t.spawn(func() { t.follow(ctx) })
	t.draw(ctx)
	var last time.Time
	var soon <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case key, ok := <-t.screen.Keys():
			if !ok || !t.press(ctx, key) {
				return nil
			}
		case <-t.changed:
			if soon == nil {
				soon = time.After(pause - time.Since(last))
			}
			continue
		case <-soon:
			last, soon = time.Now(), nil
		case <-t.screen.Changed():
		}
		t.draw(ctx)
	}
}

// press does what a key says, and reports whether it was not the last one.
func (t *top) press(ctx context.Context, key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if picture.IsShown(key) {
		if !t.isKitty {
			close(t.kitty)
		}
		t.isKitty = true
		return true
	}
	t.message = ""
	if t.isFiltering {
		switch last, n := utf8.DecodeLastRuneInString(t.filter); {
		case key == "enter":
			t.isFiltering = false
		case key == "esc":
			t.filter, t.isFiltering = "", false
		case key == "backspace" && last != 0:
			t.filter = t.filter[:len(t.filter)-n]
		case utf8.RuneCountInString(key) == 1:
			t.filter += key
		}
		return true
	}
	switch key {
	case "q":
		return false
	case "r":
		for _, r := range t.all {
			r.again = time.Time{}
			r.isStale()
		}
		t.spawn(func() { t.list(ctx) })
	}
	if t.watched != nil && (key == "enter" || key == "esc") {
		t.unwatch()
		t.watched, t.png, t.noPicture = nil, nil, ""
		t.removePicture()
		return true
	}
	step := map[string]int{"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -10, "pgdown": 10, "home": -len(t.shown),
		"end": len(t.shown)}[key]
	if t.watched == nil && step != 0 && len(t.shown) > 0 {
		t.at = min(max(0, t.at+step), len(t.shown)-1)
		t.selected = t.shown[t.at].Key
	} else if t.watched == nil && key == "/" {
		t.isFiltering = true
	}
	if t.at < len(t.shown) {
		t.pressOn(ctx, t.shown[t.at], key)
	}
	return true
}

// pressOn does what a key says of the selected session.
func (t *top) pressOn(ctx context.Context, r *topRow, key string) {
	do := func(says string, f func() (string, error)) {
		t.message = says
		t.spawn(func() {
			says, err := f()
			if err != nil {
				says = err.Error()
			}
			t.set(func() { t.message = says })
		})
	}
	switch key {
	case "enter":
		if !t.isKitty {
			t.c.Stdout.WriteString(picture.Query)
		}
		watching, end := context.WithCancel(ctx)
		t.watched, t.unwatch = r, end
		t.spawn(func() { t.watch(watching, r) })
	case "o":
		name := r.Key
		do("opening the page…", func() (string, error) {
			address, isOpen, err := openPage(t.c, name)
			if !isOpen && strings.HasPrefix(address, "http") {
				return address, err
			} else if !isOpen {
				return "bproxy view --control " + name + " prints the address of its page", err
			}
			return "your browser opens the page", err
		})
	case "t":
		if r.held == nil {
			do("taking over…", func() (string, error) { return "you have control: the agent waits", t.take(ctx, r) })
		}
	case "g":
		do("giving back…", func() (string, error) { return "given back", t.give(ctx, r) })
	}
}
