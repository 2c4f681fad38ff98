package control

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"btools/lib/exit"
)

// Each method has its own parameters, and an unknown one is told which there are.
func TestMux(t *testing.T) {
	t.Parallel()
	m := &Mux{Program: "this"}
	Handle(m, Method[struct{ N int }, int]("double"),
		func(_ context.Context, p struct{ N int }) (any, error) { return 2 * p.N, nil })
	Handle(m, Method[struct{}, string]("none"), func(context.Context, struct{}) (any, error) { return "nothing", nil })
	for _, c := range []struct {
		method, params string
		want           any
		fails          string
	}{
		{"double", `{"n":21}`, 42, ""},
		{"double", "", 0, ""},
		{"none", `{"more":1}`, "nothing", ""},
		{"double", `{"n":"x"}`, nil, "invalid parameters: json: cannot unmarshal string into Go struct field " +
			".N of type int"},
		{"half", `{}`, nil, `this has no method "half": it has double, none`},
	} {
		got, err := m.Serve(t.Context(), c.method, []byte(c.params))
		said := ""
		if err != nil {
			said = err.Error()
		}
		if got != c.want || said != c.fails {
			t.Errorf("%s %s: %v, %v; want %v, %q", c.method, c.params, got, err, c.want, c.fails)
		}
	}
}

// Programs of different versions say which one is to be restarted: the service to a client that asks for what it
// does not have, and the client of a service that does not say so itself or answers in another form.
func TestOtherVersions(t *testing.T) {
	t.Parallel()
	pid := "pid " + strconv.Itoa(os.Getpid())
	service := &Mux{Program: "bnew"}
	Handle(service, Method[struct{}, int]("hold"), func(context.Context, struct{}) (any, error) { return 1, nil })
	for of, serve := range map[string]Handler{
		"restart the older version of btools: bnew (" + pid + ") or the program that asks (" + pid + ")": service.Serve,
		"the program with " + pid + " is of an older version of btools: restart it": func(
			_ context.Context, method string, _ json.RawMessage) (any, error) {
			if method == "status" {
				return "a text", nil
			}
			return nil, Errorf(UnknownMethod, "bold has no method %q", method)
		},
	} {
		at := Path(serveFor(t, serve))
		_, err := Method[struct{}, int]("lease").Ask(t.Context(), at, struct{}{})
		var e *exit.Error
		if !errors.As(err, &e) || e.Code != exit.Usage || e.Hint != of || !strings.Contains(err.Error(), "no method") {
			t.Errorf("an unknown method: %v, %+v, want the hint %q", err, e, of)
		}
		_, err = Method[struct{}, int]("status").Ask(t.Context(), at, struct{}{})
		if !errors.As(err, &e) || e.Hint != of {
			t.Errorf("an answer of another form: %v, %+v, want the hint %q", err, e, of)
		}
	}
}
