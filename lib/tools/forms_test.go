package tools

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// formPage is a page and calls on it: a tool, its arguments, and a text of its result, after a !
// if it is an error.
type formPage struct {
	name, html string
	calls      [][3]string
}

// js is a call that evaluates an expression, and what is to be its value.
func js(expression, want string) [3]string {
	return [3]string{"browser_evaluate", `{"function":` + quoted(expression) + `}`, "### Result\n" + want + "\n"}
}

func fill(target, kind, value, want string) [3]string {
	return [3]string{"browser_fill_form", fmt.Sprintf(`{"fields":[{"name":"x","target":%q,"type":%q,"value":%q}]}`,
		target, kind, value), want}
}

func clicks(target, want string) [3]string {
	return [3]string{"browser_click", `{"target":` + quoted(target) + `}`, want}
}

// checkedIDs is an expression for the IDs of what is checked.
const checkedIDs = `[...document.querySelectorAll(':checked')].map((e) => e.id).join('')`

// formPages are forms, with what a person can do with them and what nobody can.
var formPages = []formPage{
	// Pages hide inputs behind their labels, which a person clicks.
	{"labels", `<style>.clip { position: absolute; width: 1px; height: 1px; overflow: hidden; clip: rect(0, 0, 0, 0) }
		.far { position: absolute; left: -9999px } .none { display: none }
		.unseen { visibility: hidden; position: absolute } .size { position: absolute; opacity: 0; width: 0; height: 0 }
		.switch { position: relative; display: inline-block; width: 60px; height: 34px }
		.slider { position: absolute; inset: 0; background: gray }</style>
		<p><label><input class=clip type=checkbox id=a>Clip</label>
		<p><label><input class=none type=radio id=b>None</label>
		<p><label><input class=size type=checkbox id=c>Size</label>
		<p><input class=far type=checkbox id=d><label for=d>Far</label>
		<p><label class=switch><input class=size type=checkbox id=e aria-label=Switch><span class=slider></span></label>
		<p><input class=unseen type=radio id=f><label for=f>Unseen</label>
		<div hidden><input type=checkbox id=g></div><label for=g>Elsewhere</label>
		<p><label><input class=none type=checkbox id=h>I accept
		<a href="#left">the many terms that are</a> there</label>
		<p><label>Picture<input class=none type=file></label>
		<label hidden><input type=checkbox id=j>Nowhere</label>`,
		[][3]string{
			{"browser_snapshot", `{}`, `- radio "None" [ref=`},
			{"browser_snapshot", `{}`, `- radio "Unseen" [ref=`},
			{"browser_snapshot", `{}`, `- checkbox "Elsewhere" [ref=`},
			{"browser_snapshot", `{}`, `- button "Picture" [ref=`},
			clicks("#a", `Clicked checkbox "Clip"`),
			clicks("role=radio[name=None]", `- radio "None" [checked] [`),
			fill("#c", "checkbox", "true", `Set checkbox "Size" to true`),
			fill("#d", "checkbox", "true", `Set checkbox "Far" to true`),
			clicks("#e", `Clicked checkbox "Switch"`),
			fill("role=radio[name=Unseen]", "radio", "true", `- radio "Unseen" [checked] [`),
			clicks("#g", `- checkbox "Elsewhere" [checked] [`),
			fill("#h", "checkbox", "true", `Set checkbox "I accept`),
			fill("#c", "checkbox", "false", `Set checkbox "Size" to false`),
			js(checkedIDs+" + location.hash", `"abdefgh"`),
			{"browser_find", `{"text":"Nowhere"}`, "No matches found"},
		}},
}

// useForms makes the calls of formPages.
func useForms(t *testing.T, h *host) {
	for _, page := range formPages {
		t.Run(page.name, func(t *testing.T) {
			h := h.as(t)
			address := "data:text/html,<!doctype html><meta charset=utf-8>" + url.PathEscape(page.html)
			h.wants(false, "", "browser_navigate", `{"url":`+quoted(address)+`}`)
			for _, c := range page.calls {
				want, isError := strings.CutPrefix(c[2], "!")
				h.wants(isError, want, c[0], c[1])
			}
		})
	}
}
