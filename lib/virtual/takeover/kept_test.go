package takeover

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// Events come out in their order: without a dialog that was opened and closed, and without what was said before in the
// same words where that may be left out.
func TestKept(t *testing.T) {
	t.Parallel()
	methods := []string{"Target.targetInfoChanged", "Page.navigatedWithinDocument", "Page.javascriptDialogOpening",
		"Page.javascriptDialogClosed", "Page.frameNavigated", "Page.frameNavigated"}
	type event struct{ session, method, text string }
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		var k Kept
		var model []event
		said := map[string]bool{}
		for range r.IntN(60) {
			e := event{session: string('a' + rune(r.IntN(2))), method: methods[r.IntN(len(methods))]}
			e.text = fmt.Sprint(e.session, e.method, r.IntN(3))
			if err := k.Add(e.session, e.method, []byte(e.text)); err != nil {
				t.Fatal(err)
			}
			isAgain := strings.HasPrefix(e.method, "Target.") || strings.HasPrefix(e.method, "Page.navigated")
			last := -1 // dialog of the session
			for i, m := range model {
				if m.session == e.session && strings.Contains(m.method, "Dialog") {
					last = i
				}
			}
			switch {
			case isAgain && said[e.text]:
			case e.method == "Page.javascriptDialogClosed" && last >= 0 &&
				strings.HasSuffix(model[last].method, "Opening"):
				model = append(model[:last:last], model[last+1:]...)
			default:
				model = append(model, e)
			}
			said[e.text] = said[e.text] || isAgain
		}
		got := k.Take()
		if len(got) != len(model) {
			t.Fatalf("%q, not %q", got, model)
		}
		for i := range got {
			if string(got[i]) != model[i].text {
				t.Fatalf("%q, not %q", got, model)
			}
		}
		if again := k.Take(); len(again) != 0 {
			t.Fatalf("they come twice: %q", again)
		}
	}
}

// More than 4 MiB are refused, and what is left out does not count.
func TestKeptBound(t *testing.T) {
	t.Parallel()
	var k Kept
	mega := []byte(strings.Repeat("x", 1<<20))
	for n := range 4 {
		if err := k.Add("", "Page.frameNavigated", mega); err != nil {
			t.Fatalf("after %d MiB: %v", n, err)
		}
	}
	for range 10 {
		if err := k.Add("", "Page.frameNavigated", mega[:1]); err != ErrKept {
			t.Fatal(err)
		}
	}
	k.Take()
	for range 10 {
		if k.Add("", "Page.navigatedWithinDocument", mega) != nil ||
			k.Add("", "Page.javascriptDialogOpening", mega) != nil ||
			k.Add("", "Page.javascriptDialogClosed", mega) != nil {
			t.Fatal("what is left out counts")
		}
	}
}
