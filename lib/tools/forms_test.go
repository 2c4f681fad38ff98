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

func types(target, text, want string) [3]string {
	return [3]string{"browser_type", fmt.Sprintf(`{"target":%q,"text":%q}`, target, text), want}
}

func chooses(target, value, want string) [3]string {
	return [3]string{"browser_select_option", fmt.Sprintf(`{"target":%q,"values":[%q]}`, target, value), want}
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
	// A value that an input refuses leaves the old one as it is.
	{"values", `<input type=date id=date value=2026-01-02><input type=time id=time value=01:02>
		<input type=datetime-local id=local value=2026-01-02T03:04><input type=month id=month value=2026-01>
		<input type=week id=week value=2026-W01><input type=color id=color value="#010203">
		<input type=range id=range max=10 step=2 value=4><input type=number id=number value=7>
		<script>said = ''; for (const type of ['input', 'change']) document.addEventListener(type, (e) => {
		said += e.target.id[0] })</script>`,
		[][3]string{
			types("#date", "tomorrow", `!"tomorrow" is not a value of an input of the type date: textbox takes values `+
				`such as 2026-01-31`),
			types("#time", "25:00", "!takes values such as 13:30"),
			types("#local", "2026-02-30T00:00", "!takes values such as 2026-01-31T13:30"),
			types("#month", "2026-13", "!takes values such as 2026-01"),
			types("#week", "this one", "!takes values such as 2026-W05"),
			types("#color", "nocolor", "!takes values such as #ff8800"),
			types("#range", "50", "!takes numbers from 0 to 10 in steps of 2"),
			types("#range", "5", "!takes numbers"),
			types("#number", "0x10", `!"0x10" is not a number`),
			js(`said + [...document.querySelectorAll('input')].map((e) => e.value)`,
				`"2026-01-02,01:02,2026-01-02T03:04,2026-01,2026-W01,#010203,4,7"`),
			types("#date", "2026-11-25", "Typed into"),
			types("#time", "", "Typed into"),
			types("#local", "2026-11-25 10:30", "Typed into"),
			types("#month", "2026-11", "Typed into"),
			types("#week", "2026-W48", "Typed into"),
			types("#color", "#000000", "Typed into"),
			types("#range", "8", "Typed into"),
			types("#number", "1e2", "Typed into"),
			js(`[...document.querySelectorAll('input')].map((e) => e.value).join()`,
				`"2026-11-25,,2026-11-25T10:30,2026-11,2026-W48,#000000,8,1e2"`),
			js("said", `"ddttllmmwwccrrn"`),
		}},
	// An agent sees the labels of options, and means them.
	{"options", `<select id=a aria-label=Tree><option value=1>Ash<option value=2>Birch<option value=Ash>Cedar</select>
		<select id=b aria-label=Land><option>--<option value=us>States<option value=usa>States<option value=States>Isle
		</select><select id=c aria-label=Size><option>One<optgroup label=G disabled><option>Two</optgroup>
		<optgroup label=A><option value=3>Other</optgroup><optgroup label=B><option value=4>Other</optgroup></select>
		<input id=d aria-label=Town list=towns><datalist id=towns><option>Rome</datalist>
		<input id=e aria-label=Street role=combobox><div id=f role=combobox tabindex=0 aria-label=Hat>x</div>`,
		[][3]string{
			{"browser_snapshot", `{}`, `- option "Two" [disabled]`},
			chooses("#a", "Ash", "Chose Ash of"),
			js("a.value", `"1"`),
			chooses("#a", "2", "Chose Birch of"),
			chooses("#b", "States", `!combobox "Land" has 2 options "States": give the value of one, "us", "usa"`),
			chooses("#b", "usa", "Chose States of"),
			js("b.value", `"usa"`),
			chooses("#c", "Two", `!the option "Two" of combobox "Size" is disabled`),
			chooses("#c", "Other", `!give the value of one, "3" (in "A"), "4" (in "B")`),
			fill("#c", "combobox", "4", "Chose Other of"),
			chooses("#c option >> nth=0", "One", `!option "One" is an option of combobox "Size": `+
				"browser_select_option chooses it there"),
			clicks("#c option >> nth=0", "!browser_select_option chooses it there"),
			fill("#d", "combobox", "Rome", `!combobox "Town" is not a select: browser_type types into it`),
			chooses("#e", "Main", "!types into it, and browser_click chooses from what it then shows"),
			chooses("#f", "Fez", `!combobox "Hat" is not a select: click it, and then its option`),
		}},
	// What never stands still is clicked as a person does it; a click that misses it hits nothing else.
	{"moving", `<style>@keyframes pulse { 50% { transform: scale(1.1) } } #a, #c { animation: pulse 1s infinite }
		@keyframes drift { to { margin-left: 300px } } #b { animation: drift 2s infinite alternate linear }
		button { position: relative } #d { transition: left .3s }</style><script>said = ''; dodged = 0
		onclick = (e) => { said += e.target.id || 'else' }</script>
		<p><button id=a>Pulse</button><p><button id=b>Drift</button><p><button id=d>Slide</button><p>
		<button id=c onpointermove="if (dodged < 2) c.style.left = ++dodged * 200 + 'px'">Dodge</button>`,
		[][3]string{
			clicks("#a", `Clicked button "Pulse"`),
			clicks("#b", `Clicked button "Drift"`),
			clicks("#c", `Clicked button "Dodge"`),
			js("d.style.left = '400px'", `"400px"`),
			clicks("#d", `Clicked button "Slide"`),
			js("said + dodged", `"abcd2"`),
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
