package virtual

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"btools/lib/jsonrpc"
)

// protocol is a browser's description of its protocol.
type protocol struct {
	Domains []domain `json:"domains"`
}

type domain struct {
	Name     string  `json:"domain"`
	Types    []field `json:"types"`
	Commands []struct {
		Name   string  `json:"name"`
		Params []field `json:"parameters"`
	} `json:"commands"`
}

// field is a parameter, a property or a type.
type field struct {
	ID       string   `json:"id"`
	Name     string   `json:"name"`
	Type     string   `json:"type"`
	Ref      string   `json:"$ref"`
	Optional bool     `json:"optional"`
	Enum     []string `json:"enum"`
	Items    *field   `json:"items"`
	Fields   []field  `json:"properties"`
}

// readProtocol asks the browser for its protocol, and adds the domain's name to
// references within a domain.
func readProtocol(t *testing.T, b *Browser) (p protocol) {
	t.Helper()
	got, err := http.Get("http://" + b.Addr() + "/json/protocol")
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	if err := json.NewDecoder(got.Body).Decode(&p); err != nil {
		t.Fatal(err)
	}
	return p
}

// samples makes parameters for commands.
type samples struct {
	types map[string]field // by "Domain.Type"
	// given are values for types and names of parameters, such as
	// "Target.TargetID" or "guid": ids of another session.
	given map[string][]any
}

func newSamples(p protocol, given map[string][]any) samples {
	s := samples{map[string]field{}, given}
	for _, d := range p.Domains {
		for _, typ := range d.Types {
			s.types[d.Name+"."+typ.ID] = typ
		}
	}
	return s
}

// full is a reference's full name.
func full(domain, ref string) string {
	for _, c := range ref {
		if c == '.' {
			return ref
		}
	}
	return domain + "." + ref
}

// of is a value for a field; nil: there is none.
func (s samples) of(domain string, f field, depth int) any {
	if f.Ref != "" {
		ref := full(domain, f.Ref)
		if depth > 6 {
			return nil
		}
		d := ref[:slices.Index([]byte(ref), '.')]
		return s.of(d, s.types[ref], depth+1)
	}
	if len(f.Enum) > 0 {
		return f.Enum[0]
	}
	switch f.Type {
	case "string", "binary":
		return "x"
	case "integer", "number":
		return 1
	case "boolean":
		return true
	case "array":
		if f.Items != nil {
			if v := s.of(domain, *f.Items, depth+1); v != nil {
				return []any{v}
			}
		}
		return []any{}
	case "object":
		o := map[string]any{}
		for _, p := range f.Fields {
			if !p.Optional {
				o[p.Name] = s.of(domain, p, depth+1)
			}
		}
		return o
	}
	return "x"
}

// foreign returns the ids of another session that fit a parameter.
func (s samples) foreign(domain string, f field) []any {
	if f.Type == "array" && f.Items != nil {
		var all []any
		for _, v := range s.foreign(domain, field{Name: f.Name, Type: f.Items.Type, Ref: f.Items.Ref}) {
			all = append(all, []any{v})
		}
		return all
	}
	if f.Ref != "" {
		if all := s.given[full(domain, f.Ref)]; all != nil {
			return all
		}
	}
	return s.given[f.Name]
}

// commands are the parameters to try a method with: what it must have, with
// each foreign id in each place that can take it, and with all at once.
func (s samples) commands(domain string, params []field) (all []json.RawMessage, named []bool) {
	base := map[string]any{}
	for _, f := range params {
		if !f.Optional {
			base[f.Name] = s.of(domain, f, 0)
		}
	}
	add := func(ids map[string]any) {
		raw, err := json.Marshal(base)
		if err != nil {
			panic(err)
		}
		for name, v := range ids {
			id, _ := json.Marshal(v)
			raw = jsonrpc.Set(raw, name, id)
		}
		all, named = append(all, raw), append(named, len(ids) > 0)
	}
	together := map[string]any{}
	for _, f := range params {
		for _, id := range s.foreign(domain, f) {
			add(map[string]any{f.Name: id})
			together[f.Name] = id
		}
	}
	if len(together) > 1 {
		add(together)
	}
	if len(together) == 0 {
		add(nil)
	}
	return all, named
}
