package browse

import (
	"context"
	"strings"
)

// Changes is the snapshot of the page, without the parts that an agent has been given
// before if these are the larger part. Changed is false if nothing differs.
func (t *Tab) Changes(ctx context.Context) (text string, changed bool, err error) {
	t.b.mu.Lock()
	last, same := t.last, t.lastNavigation == t.navigations
	t.b.mu.Unlock()
	if text, err = t.Snapshot(ctx, SnapshotOptions{}); err != nil {
		return "", false, err
	}
	t.Remember(text)
	if last == nil || !same {
		return text, true, nil
	}
	text = changes(last, strings.Split(text, "\n"))
	return text, text != "", nil
}

// Remember records the whole snapshot that an agent has been given: Changes leaves out
// what it has.
func (t *Tab) Remember(snapshot string) {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	t.last, t.lastNavigation = strings.Split(snapshot, "\n"), t.navigations
}

// maxBelow is how many unchanged lines are shown below a changed one.
const maxBelow = 5

// changes are the lines that differ, with the lines that these belong to.
func changes(old, now []string) string {
	head := 0
	for head < min(len(old), len(now)) && old[head] == now[head] {
		head++
	}
	if head == len(old) && head == len(now) {
		return ""
	}
	tail := 0
	for tail < min(len(old), len(now))-head && old[len(old)-1-tail] == now[len(now)-1-tail] {
		tail++
	}
	end := len(now) - tail
	if 2*(end-head) > len(now) || len(now) < 20 {
		return strings.Join(now, "\n")
	}
	indent := func(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
	for n := 0; n < maxBelow && end > head && end < len(now) && indent(now[end]) > indent(now[end-1]); n++ {
		end++ // what belongs to the last line
	}
	depth := indent(now[min(head, len(now)-1)])
	var above []string
	for k := head - 1; k >= 0 && depth > 0; k-- {
		if d := indent(now[k]); d < depth {
			above, depth = append([]string{now[k]}, above...), d
		}
	}
	out := append([]string{"# what has changed; the rest is as it was"}, above...)
	out = append(out, now[head:end]...)
	if head == end {
		out = append(out, "# something was removed here")
	}
	return strings.Join(out, "\n")
}
