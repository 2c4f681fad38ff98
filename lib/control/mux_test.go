package control

import (
	"context"
	"testing"
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
