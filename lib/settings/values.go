package settings

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Values are settings in the JSON of a request, by their members: those that differ
// from what the service has anyway. Durations are in milliseconds, sizes in bytes.
type Values map[string]json.RawMessage

// WithState returns the values of a session that starts with a state; "": none differs.
func WithState(name string) Values {
	v := Values{}
	if name != "" {
		v.Put(Named("STATE"), &Settings{State: name})
	}
	return v
}

// Put adds the row's value of s.
func (v Values) Put(r *Row, s *Settings) {
	value := r.Field(s)
	if d, is := value.(*time.Duration); is {
		value = (*d + time.Millisecond - 1).Milliseconds() // rounded up, as 0 means never
	}
	v[r.Member()], _ = json.Marshal(value) // none of these types fails
}

// Apply sets s to the values. The error names the member that may not be set at this
// place, or has a value that it must not have.
func (v Values) Apply(s *Settings, at Where) error {
	rows := map[string]*Row{}
	for _, r := range Rows(at) {
		rows[r.Member()] = r
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		r := rows[name]
		if r == nil {
			return fmt.Errorf("there is no setting %q: they are %s", name,
				strings.Join(slices.Sorted(maps.Keys(rows)), ", "))
		}
		if err := r.decode(s, v[name]); err != nil {
			return fmt.Errorf("%s %w", name, err)
		}
		if err := r.Check(s, at, Files{}); err != nil {
			return fmt.Errorf("%s %w, not %s", name, err, r.Shown(string(v[name])))
		}
	}
	return nil
}

// decode sets the row's value in s to that of a member. What has a syntax of its own is
// read as a text.
func (r *Row) decode(s *Settings, raw json.RawMessage) error {
	into := r.Field(s)
	var ms int64
	var text string
	var list []string // of its own: Unmarshal writes into one that is there
	switch into.(type) {
	case *time.Duration:
		into = &ms
	case *string:
		into = &text
	case *[]string:
		into = &list
	}
	if err := json.Unmarshal(raw, into); err != nil || string(raw) == "null" {
		return fmt.Errorf("is not %s", r.KindOf())
	}
	switch p := r.Field(s).(type) {
	case *time.Duration:
		if ms > MaxDuration.Milliseconds() {
			ms = MaxDuration.Milliseconds() + 1
		}
		*p = time.Duration(ms) * time.Millisecond
	case *[]string:
		*p = list
	case *string:
		if r.Read != nil && text != "" {
			return r.Read(s, text, Files{})
		}
		*p = text
	}
	return nil
}
