package tools

import (
	"encoding/json"
	"testing"
)

// An argument that chooses a browser in another mode of bmcp is refused with the mode.
func TestArgumentsOfOtherModes(t *testing.T) {
	t.Parallel()
	pools, hub, sessions := []string{"browser_pool", "browser_instance"}, []string{"session_id", "instanceId"},
		[]string{"session_id", "state"}
	for _, c := range []struct {
		has        []string
		name, want string
	}{
		{sessions, "browser_pool", ` without pools: there are session_id, state, url`},
		{nil, "browser_instance", ` without pools: there are url`},
		{sessions, "instanceId", ` without --extension: there are session_id, state, url`},
		{pools, "session_id", ` with pools: there are browser_instance, browser_pool, url`},
		{hub, "state", ` with --extension: there are instanceId, session_id, url`},
		{nil, "session_id", `: there are url`},
		{pools, "urll", `: did you mean url?`},
	} {
		err := CheckArguments("browser_navigate", json.RawMessage(`{"`+c.name+`":"a"}`), c.has)
		if want := `there is no argument "` + c.name + `"` + c.want; err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", c.name, err, want)
		}
	}
}
