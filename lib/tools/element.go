package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"btools/lib/browse"
	"btools/lib/spell"
)

func click(ctx context.Context, r *reply, t browse.Page, a struct {
	Target      browse.Target
	DoubleClick bool
	Button      string
	Modifiers   []string
}) error {
	r.on = []browse.Target{a.Target}
	what, err := t.Click(ctx, a.Target, browse.ClickOptions{Button: a.Button, Double: a.DoubleClick,
		Modifiers: a.Modifiers})
	if err != nil {
		return err
	}
	how := "Clicked"
	if a.DoubleClick {
		how = "Double-clicked"
	}
	r.did("%s %s", how, what)
	return nil
}

func hover(ctx context.Context, r *reply, t browse.Page, a struct{ Target browse.Target }) error {
	r.on = []browse.Target{a.Target}
	what, err := t.Hover(ctx, a.Target)
	return r.tells(err, "Moved the mouse over %s", what)
}

func typeText(ctx context.Context, r *reply, t browse.Page, a struct {
	Target         browse.Target
	Text           string
	Submit, Slowly bool
}) error {
	r.on, r.proven = []browse.Target{a.Target}, true
	what, err := t.Type(ctx, a.Target, a.Text, a.Slowly, a.Submit)
	if err != nil {
		return err
	}
	r.did("Typed into %s", what)
	if a.Submit {
		r.did("Pressed Enter")
	}
	return nil
}

func fillForm(ctx context.Context, r *reply, t browse.Page, a struct {
	Fields []struct {
		Target            browse.Target
		Name, Type, Value string
	}
}) error {
	for i, f := range a.Fields {
		if err := fillField(ctx, r, t, f.Target, f.Type, f.Value); err != nil {
			return unfilled(f.Name, len(a.Fields)-i-1, err)
		}
	}
	return nil
}

// unfilled is the error of a field, which has so many after it.
func unfilled(name string, left int, err error) error {
	if left > 0 {
		err = fmt.Errorf("%w (the %d fields after it were not filled)", err, left)
	}
	return fmt.Errorf("cannot fill %s: %w", name, err)
}

func fillField(ctx context.Context, r *reply, t browse.Page, target browse.Target, kind, value string) error {
	r.on, r.proven = append(r.on, target), true
	switch kind {
	case "checkbox", "radio":
		if value != "true" && value != "false" {
			return fmt.Errorf("the value of a %s must be true or false, not %q", kind, value)
		}
		what, err := t.Check(ctx, target, value == "true")
		return r.tells(err, "Set %s to %s", what, value)
	case "combobox":
		what, labels, err := t.Choose(ctx, target, []string{value})
		if err == nil {
			r.didChoose(labels, what)
		}
		return err
	}
	what, err := t.Type(ctx, target, value, false, false)
	return r.tells(err, "Typed into %s", what)
}

func (r *output) didChoose(labels []string, of string) {
	r.did("Chose %s of %s", cmp.Or(strings.Join(labels, ", "), "nothing"), of)
}

func selectOption(ctx context.Context, r *reply, t browse.Page, a struct {
	Target browse.Target
	Values []string
}) error {
	r.on, r.proven = []browse.Target{a.Target}, true
	what, labels, err := t.Choose(ctx, a.Target, a.Values)
	if err == nil {
		r.didChoose(labels, what)
	}
	return err
}

func pressKey(ctx context.Context, r *reply, t browse.Page, a struct{ Key string }) error {
	err := t.Press(ctx, a.Key)
	if err == nil {
		r.didPress(a.Key)
	}
	return err
}

// didPress says that a key was pressed, and of one that a browser would act on that only the page gets it.
func (r *output) didPress(key string) {
	r.did("Pressed %s", key)
	switch strings.ToLower(key) {
	case "f5", "control+f5", "shift+f5", "control+r", "control+shift+r", "meta+r", "meta+shift+r":
		r.say("Only the page gets the key, which reloads nothing: browser_navigate with its address loads it again.")
	case "alt+arrowleft", "alt+arrowright":
		r.say("Only the page gets the key, which goes nowhere: browser_navigate_back goes back.")
	}
}

func drag(ctx context.Context, r *reply, t *browse.Tab, a struct{ StartTarget, EndTarget browse.Target }) error {
	what, onto, err := t.Drag(ctx, a.StartTarget, a.EndTarget)
	return r.tells(err, "Dragged %s onto %s", what, onto)
}

func drop(ctx context.Context, r *reply, t *browse.Tab, a struct {
	Target browse.Target
	Paths  []string
	Data   map[string]string
}) error {
	if len(a.Paths) == 0 && len(a.Data) == 0 {
		return errors.New("one of paths and data is needed")
	}
	paths, err := r.server.readable(ctx, a.Paths)
	if err != nil {
		return err
	}
	r.page, r.acts = pageChanges, true
	what, err := t.Drop(ctx, a.Target, a.Data, paths)
	return r.tells(err, "Dropped %s onto %s",
		strings.Join(append(slices.Sorted(maps.Keys(a.Data)), paths...), ", "), what)
}

func upload(ctx context.Context, r *reply, t *browse.Tab, a struct{ Paths []string }) error {
	paths, err := r.server.readable(ctx, a.Paths)
	if err != nil {
		return err
	}
	r.page, r.acts = pageChanges, true
	return r.tells(t.Upload(ctx, paths), "Gave the file chooser %s", spell.Count(len(paths), "file"))
}

func handleDialog(ctx context.Context, r *reply, t browse.Page, a struct {
	Accept     bool
	PromptText *string
}) error {
	if r.was != nil && !r.was.Answers(t) {
		r.page = pageState
		return errors.New("the dialog that was open has closed by itself, and another one has opened, which was not " +
			"answered")
	}
	r.page, r.acts = pageChanges, true
	if err := t.HandleDialog(ctx, a.Accept, a.PromptText); err != nil {
		return err
	}
	if a.Accept {
		r.did("Accepted the dialog")
	} else {
		r.did("Dismissed the dialog")
	}
	return nil
}

func evaluate(ctx context.Context, r *reply, t browse.Page, a struct {
	Function, Filename string
	Target             browse.Target
}) error {
	value, seen, err := t.Evaluate(ctx, a.Function, a.Target)
	if err != nil {
		return err
	}
	r.page, r.seen = pageState, seen
	return r.returned(ctx, a.Filename, value)
}
