package bus

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	for name, token := range map[string]string{"A-1_b": "A-1_b", "a.b": "a=2eb", "*": "=2a", ">": "=3e",
		"my pool": "my=20pool", "=2e": "=3d2e", "ü": "=c3=bc"} {
		if got := Token(name); got != token || Name(got) != name {
			t.Errorf("%q: %q, and back %q", name, got, Name(got))
		}
	}
	for got, want := range map[string]string{
		FreeSubject("eu", "a.b", Any, "u", "g"):    "btools.v1.eu.free.a=2eb.any.u.g",
		FreeSubject("eu", "A", All, All, All):      "btools.v1.eu.free.A.*.*.*",
		WantSubject("eu", "*", All, All):           "btools.v1.eu.want.=2a.*.*",
		HostSubject("eu", "h 1", "want", "u", "g"): "btools.v1.eu.host.h=201.want.u.g",
		HostSubjects("eu", "h.1"):                  "btools.v1.eu.host.h=2e1.>",
		OfferSubject(All, "u", "g", All):           "btools.v1.*.gw.u.g.offer.*",
		OpenSubject("eu", "A", "h"):                "btools.v1.eu.open.A.h",
		LoadSubject("eu", All):                     "btools.v1.eu.load.*",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, text := range []string{"=", "=2", "=zz", "a=", "=2e="} {
		Name(text) // what a stranger sends
	}
}

func TestRanks(t *testing.T) {
	t.Parallel()
	for host, rank := range map[string]string{"h-0": "r0", "h7": "r7", "8": "r8", "h-15": "r8", "h16": "r16",
		"2h-31": "r16", "h-511": "r256", "h512": "r512", "h": "r512", "": "r512", "h99999999999999999999": "r512"} {
		if got := RankOf(host); got != rank {
			t.Errorf("%q: %s, want %s", host, got, rank)
		}
	}
}

func FuzzTokens(f *testing.F) {
	for _, name := range []string{"A", "a.b", "*", ">", "=", "=2e", " ", "ü"} {
		f.Add(name)
	}
	token := regexp.MustCompile(`^[a-zA-Z0-9=_-]*$`)
	endpoint := regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	f.Fuzz(func(t *testing.T, name string) {
		Name(name)
		if name == All {
			return
		}
		got, end := Token(name), endpointName(name)
		if Name(got) != name || !token.MatchString(got) || !endpoint.MatchString(end) {
			t.Errorf("%q: %q, %q, %q", name, got, Name(got), end)
		}
	})
}

func TestMessages(t *testing.T) {
	t.Parallel()
	var w Want
	read := func(text string) error { return (&Message{Data: []byte(text)}).Read(&w) }
	if err := read(`{"want":"x","age_ms":5,"new":{"of":"later"}}`); err != nil || w.Want != "x" || w.Age != 5 {
		t.Error(w, err)
	}
	long := `{"want":"` + strings.Repeat("x", MaxSize) + `"}`
	for _, text := range []string{"", "x", `{"want":1}`, `{"age_ms":1e99}`, long} {
		if read(text) == nil {
			t.Errorf("%.20q is read", text)
		}
	}
	if _, err := encode(Ask{Not: make([]string, MaxSize)}); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Error(err)
	}
}

// No message has a time of a clock: those of machines differ.
func TestNoClocks(t *testing.T) {
	t.Parallel()
	var look func(reflect.Type)
	look = func(of reflect.Type) {
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice:
			look(of.Elem())
		case reflect.Struct:
			for i := range of.NumField() {
				f := of.Field(i)
				if f.Type == reflect.TypeFor[time.Time]() || strings.HasSuffix(f.Name, "At") {
					t.Errorf("%v has the time %s", of, f.Name)
				}
				look(f.Type)
			}
		}
	}
	for _, m := range []any{Ask{}, Want{}, Placed{}, Offer{}, Answer{}, Cancel{}, Load{}, Drain{}} {
		look(reflect.TypeOf(m))
	}
}
