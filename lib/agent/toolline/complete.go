package toolline

import (
	"encoding/json"
	"strings"
)

// Choice is a word that can stand at the end of a command line.
type Choice struct{ Word, About string }

// Complete are the words that can stand after those before, and begin as word does: a tool, an argument's name with
// "=", or one of the values that an argument can have.
func Complete(tools []json.RawMessage, before []string, word string) (all []Choice) {
	offer := func(value, about string) {
		if strings.HasPrefix(value, word) {
			all = append(all, Choice{value, about})
		}
	}
	if len(before) == 0 {
		full, short := names(tools)
		for i, raw := range tools {
			about := read(raw, full[i], short[i]).sentence()
			offer(short[i], about)
			if strings.HasPrefix(word, prefix) && full[i] != short[i] {
				offer(full[i], about)
			}
		}
		return all
	}
	t, err := Of(tools).Find(before[0])
	if err != nil {
		return nil
	}
	if name, _, ok := strings.Cut(word, "="); ok {
		if a := t.argument(name); a != nil {
			for _, v := range a.choices {
				offer(name+"="+v, "")
			}
			return all
		}
	}
	given, _ := t.assign(before[1:]) // what is right of it
	for _, a := range t.alone(given) {
		for _, v := range a.choices {
			offer(v, printable(a.name+": "+a.about))
		}
	}
	for _, a := range t.args {
		if given[a.name] == nil || a.schema.Type == "array" {
			offer(a.name+"=", printable(a.about))
		}
	}
	return all
}

// Next are the names of the arguments whose value the word after these can be if it stands alone.
func (t Tool) Next(words []string) (names []string) {
	given, _ := t.assign(words)
	for _, a := range t.alone(given) {
		names = append(names, a.name)
	}
	return names
}

// alone are the arguments of which the next word is one: the first that is required, else any.
func (t Tool) alone(given map[string][]string) []*argument {
	next := t.next(given)
	if len(next) > 0 && next[0].required {
		return next[:1]
	}
	return next
}
