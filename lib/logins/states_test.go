package logins

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"btools/lib/exit"
)

// with returns a state with one item of localStorage.
func with(value string) *State {
	raw, _ := json.Marshal([]map[string]string{{"name": "n", "value": value}})
	return &State{Origins: []Origin{{Origin: "https://a.test", LocalStorage: raw}}}
}

// valueOf returns that item of a state in the store.
func valueOf(t *testing.T, s *Store, name string) string {
	t.Helper()
	state, err := s.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	var all []struct{ Value string }
	if err := json.Unmarshal(state.Origins[0].LocalStorage, &all); err != nil {
		t.Fatal(err)
	}
	return all[0].Value
}

func TestParse(t *testing.T) {
	const text = `{"cookies":[{"name":"a","value":"<v>","domain":".a.test","path":"/x","expires":5.5,"httpOnly":true,
		"secure":false,"sameSite":"None","partitionKey":"https://b.test","_crHasCrossSiteAncestor":true}],
		"origins":[{"origin":"https://a.test:1","localStorage":[{"name":"\ud800","value":"&"}],
		"indexedDB":[{"name":"db","version":1,"stores":[]}]}]}`
	s, dropped, err := Parse([]byte(text))
	if err != nil || len(dropped) > 0 {
		t.Fatal(err, dropped)
	}
	var want bytes.Buffer
	json.Compact(&want, []byte(text))
	if got := strings.TrimSpace(string(s.Export())); got != want.String() {
		t.Errorf("exported\n%s, want\n%s", got, want.String())
	}
	_, dropped, _ = Parse([]byte(`{"credentials":[1],"origins":[{"origin":"http://a","opfs":[1]}]}`))
	if len(dropped) != 2 {
		t.Errorf("left out: %q", dropped)
	}
	s, _, err = Parse([]byte(`{"cookies":[{"name":"a","value":"v","url":"https://a.test/x"}]}`))
	if err != nil || s.Cookies[0].Expires != -1 || s.Cookies[0].Path != "" || s.Cookies[0].site() != "a.test" {
		t.Errorf("%+v, %v", s, err)
	}
	if out := string(s.Export()); !strings.Contains(out, `"sameSite":"Lax"`) || !strings.Contains(out, `"origins":[]`) {
		t.Error(out)
	}
	for _, origin := range []string{"a", "ftp://a", "https://a/", "https://u@a", "https://a?x", "https://a#x"} {
		if _, _, err := Parse(fmt.Appendf(nil, `{"origins":[{"origin":%q}]}`, origin)); err == nil {
			t.Errorf("%s is taken for an origin", origin)
		}
	}
	for _, member := range []string{`"priority":"Highest"`, `"sourceScheme":"x"`, `"sourcePort":65536`} {
		if _, _, err := Parse([]byte(`{"cookies":[{"name":"a","domain":"a.test",` + member + `}]}`)); err == nil {
			t.Errorf("a cookie may have %s", member)
		}
	}
	twice := `{"origin":"http://a"}`
	if _, _, err := Parse([]byte(`{"origins":[` + twice + `,` + twice + `]}`)); err == nil {
		t.Error("an origin is there twice")
	}
}

func TestHasCookieFor(t *testing.T) {
	s := &State{Cookies: []Cookie{
		{Name: "a", Domain: ".all.test", Path: "/elsewhere", Expires: -1}, {Name: "a", Domain: "one.test", Expires: -1},
		{Name: "a", URL: "https://url.test/", Expires: -1}, {Name: "a", Domain: "past.test", Expires: 5},
		{Name: "a", Domain: "part.test", Expires: -1, PartitionKey: "https://x.test"},
	}}
	for host, want := range map[string]bool{
		"all.test": true, "www.all.test:81": true, "overall.test": false, "one.test": true, "www.one.test": false,
		"url.test": true, "past.test": false, "part.test": false, "none.test": false,
	} {
		if got := s.HasCookieFor("https://" + host); got != want {
			t.Errorf("%s has a cookie: %v, want %v", host, got, want)
		}
	}
}

// No error has a value in it, and what is read can be written.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"cookies":[{"name":"a","value":"s3cret","domain":"a"}],"origins":[{"origin":"http://a",` +
		`"localStorage":[{"name":"a","value":"s3cret"}],"indexedDB":[{"name":"a","version":1,"stores":[{}]}]}]}`))
	f.Add([]byte(`{"cookies":[{"value":12345678}],"origins":"s3cret"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, _, err := Parse(b)
		if err != nil {
			for _, secret := range []string{"s3cret", "12345678"} {
				if strings.Contains(err.Error(), secret) && !strings.Contains(string(b), `"`+secret+`":`) {
					t.Errorf("%s: %v", b, err)
				}
			}
			return
		}
		again, _, err := Parse(s.Export())
		if err != nil || !bytes.Equal(again.Export(), s.Export()) {
			t.Errorf("%s: %v", s.Export(), err)
		}
		s.describe(&Info{}, true)
	})
}

func TestStore(t *testing.T) {
	s := &Store{Dir: t.TempDir() + "/btools/states"}
	ctx := t.Context()
	if all, bad, err := s.List(ctx); len(all)+len(bad) > 0 || err != nil {
		t.Errorf("no directory: %v, %v, %v", all, bad, err)
	}
	if err := s.Save(ctx, "one", with("old")); err != nil {
		t.Fatal(err)
	}
	// A disk that fills up, and writers that are killed, leave the old state.
	s.sync = func(*os.File) error { return syscall.ENOSPC }
	if err := s.Save(ctx, "one", with("new")); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	s.sync = nil
	os.WriteFile(s.path("one")+newFile, []byte("{"), 0o600)
	if got := valueOf(t, s, "one"); got != "old" {
		t.Errorf("the state is %q", got)
	}
	if all, bad, err := s.List(ctx); len(all) != 1 || len(bad) > 0 || err != nil || all[0].Name != "one" {
		t.Errorf("%v, %v, %v", all, bad, err)
	}
	if files, _ := os.ReadDir(s.Dir); len(files) != 2 { // with the lock
		t.Errorf("the directory has %v", files)
	}
	// Of two that save at once, one is first.
	var saved sync.WaitGroup
	for i := range 8 {
		saved.Go(func() {
			if err := s.Save(ctx, "two", with(strings.Repeat(fmt.Sprint(i), 1<<20))); err != nil {
				t.Error(err)
			}
		})
	}
	saved.Wait()
	if got := valueOf(t, s, "two"); got != strings.Repeat(got[:1], 1<<20) {
		t.Error("two states are mixed")
	}
	if err := s.Delete(ctx, "two"); err != nil {
		t.Error(err)
	}
	if _, err := s.Load("two"); err == nil {
		t.Error("a state that was deleted is there")
	}
}

func TestUnusableStates(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	os.Chmod(s.Dir, 0o700)
	for text, want := range map[string]string{
		`{"version":2,"state":{"cookies":"s3cret"}}`:   "has version 2, of a newer btools",
		`{"version":1,"saved_at":"s3cret","state":{}}`: "is damaged",
		`{"version":1,"state":{}}`:                     "it has no version, time or state",
		`{"version":1,"st`:                             "not valid JSON at byte",
		``:                                             "not valid JSON",
	} {
		os.WriteFile(s.path("x"), []byte(text), 0o600)
		_, err := s.Load("x")
		var e *exit.Error
		if !errors.As(err, &e) || e.Code != exit.Data || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, name := range []string{"", ".x", "a/b", "ä", strings.Repeat("x", 65)} {
		if _, err := s.Load(name); err == nil || !strings.Contains(err.Error(), "not the name of a state") {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := Open(func(string) string { return "" }, ""); err == nil {
		t.Error("a store without a directory")
	}
	if s, err := Open(func(string) string { return "relative" }, "/home/u"); err != nil ||
		s.Dir != "/home/u/.local/state/btools/states" {
		t.Errorf("%+v, %v", s, err)
	}
}

// Create replaces nothing.
func TestCreate(t *testing.T) {
	s := &Store{Dir: t.TempDir() + "/states"}
	if s.Has("a") || s.Has("../a") {
		t.Error("an empty store has states")
	}
	if err := s.Create(t.Context(), "a", with("1")); err != nil {
		t.Fatal(err)
	}
	if err := s.Create(t.Context(), "a", with("2")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the second Create: %v", err)
	}
	if got := valueOf(t, s, "a"); got != "1" || !s.Has("a") {
		t.Errorf("the value is %q", got)
	}
}

// Of the users of a program, root and its own user have its states, others their own.
func TestStoreFor(t *testing.T) {
	s := &Store{Dir: t.TempDir() + "/states"}
	for _, uid := range []int{-1, 0, os.Geteuid()} {
		if got := s.For(uid); got.Dir != s.Dir {
			t.Errorf("user %d has %s", uid, got.Dir)
		}
	}
	if a, b := s.For(70001), s.For(70002); a.Dir != s.Dir+"/uid-70001" || b.Dir != s.Dir+"/uid-70002" {
		t.Errorf("other users have %s and %s", a.Dir, b.Dir)
	}
}
