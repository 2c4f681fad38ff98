package coordinator

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"btools/lib/agent/source"
	"btools/lib/jsonrpc"
	"btools/lib/mcp/child"
	"btools/lib/record"
)

// compile asserts that a text is a valid JSON Schema.
func compile(t *testing.T, name string, text []byte) {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Errorf("%s is not JSON: %v", name, err)
		return
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(name, value); err != nil {
		t.Errorf("%s: %v", name, err)
	} else if _, err := c.Compile(name); err != nil {
		t.Errorf("%s is not a JSON Schema: %v\n%s", name, err, text)
	}
}

// Each file is a JSON Schema, and belongs to a tool or to an argument.
func TestSchemaFiles(t *testing.T) {
	files, err := schemas.ReadDir("schemas")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".json")
		compile(t, f.Name(), schemaFile(name))
		of, side, _ := strings.Cut(name, ".")
		used := side == "" || side == "output"
		if of == "argument" {
			of, used = side, true
		}
		if !used || !slices.Contains(ownNames, of) {
			t.Errorf("%s is for %s %q, which is none of %v", f.Name(), of, side, ownNames)
		}
	}
	var types []string
	json.Unmarshal(jsonrpc.Get(schemaFile("coordinator_launch_browser"), "properties", "browserType", "enum"),
		&types)
	if !slices.Equal(types, record.Types) {
		t.Errorf("coordinator_launch_browser.json has the types %v, want %v", types, record.Types)
	}
}

// ownNames are our own tools, and the arguments that other tools are given.
var ownNames = []string{
	"coordinator_list_browsers", "coordinator_status", "coordinator_launch_browser", "coordinator_stop_browser",
	"coordinator_restart_browser", "browser_pool_status", "browser_execute_bulk", "browser_session_stats",
	"browser_result", "browser_get_blob",
	"session_id", "state", "browser_pool", "browser_instance", "instanceId",
}

// However the browsers are shared, our tools have valid schemas and the
// arguments that choose a browser.
func TestOwnSchemas(t *testing.T) {
	const stop, bulk = "coordinator_stop_browser", "browser_execute_bulk"
	for name, test := range map[string]struct {
		browsers  *source.Source
		drives    bool
		arguments map[string]string // of some tools
	}{
		"one browser": {browsers: source.Proxied(nil, nil, nil, source.Sharing{}), arguments: map[string]string{
			stop: "", bulk: "commands stop_on_error return_all_results"}},
		"a browser that a child drives": {browsers: source.Proxied(nil, nil, nil, source.Sharing{}), drives: true,
			arguments: map[string]string{stop: ""}},
		"sessions beside it": {
			browsers: source.Proxied(nil, nil, nil, source.Sharing{Kind: source.ProfileAndSessions}),
			arguments: map[string]string{
				stop: "session_id", bulk: "commands stop_on_error return_all_results session_id"}},
		"a session a host": {browsers: source.Proxied(nil, nil, nil, source.Sharing{Kind: source.SessionsOnly}),
			arguments: map[string]string{
				stop: "session_id", bulk: "commands stop_on_error return_all_results session_id"}},
		"pools": {browsers: source.Served(nil, ""), arguments: map[string]string{
			bulk: "commands stop_on_error return_all_results browser_pool browser_instance"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := child.Spec{}
			if test.drives {
				spec = driver
			}
			c := &Server{Options: Options{Source: test.browsers, Children: []child.Spec{spec}}}
			left := len(test.arguments)
			for _, tool := range c.ownList() {
				compile(t, tool.Name, tool.Input)
				if tool.Output != nil {
					compile(t, tool.Name+".output", tool.Output)
				}
				if strings.Contains(string(tool.Input), record.Firefox) == test.drives &&
					strings.Contains(tool.Name, "launch") {
					t.Errorf("a child drives the browser: %v; %s has the schema %s", test.drives, tool.Name, tool.Input)
				}
				want, ok := test.arguments[tool.Name]
				if !ok {
					continue
				}
				left--
				if got := names(t, tool.Input); got != want {
					t.Errorf("%s has the arguments %q, want %q", tool.Name, got, want)
				}
			}
			if left != 0 {
				t.Errorf("%d of the tools %v are not there", left, test.arguments)
			}
		})
	}
}

// names are the arguments of a schema, in their order.
func names(t *testing.T, schema json.RawMessage) string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(jsonrpc.Get(schema, "properties")))
	d.Token()
	var all []string
	for d.More() {
		name, _ := d.Token()
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		all = append(all, name.(string))
	}
	return strings.Join(all, " ")
}
