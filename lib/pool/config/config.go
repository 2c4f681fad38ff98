// Package config reads the configuration of pools from the environment and from
// a TOML file. An instance's value overrides the pool's, which overrides the
// global one; at each level the environment overrides the file. All errors are
// reported together.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"btools/lib/envfile"
	"btools/lib/exit"
	"btools/lib/settings"
	"btools/lib/settings/ondisk"
	"btools/lib/spell"
)

// Prefix begins the names of all variables: PREFIX KEY is global, PREFIX
// _POOL_KEY is for a pool, PREFIX _POOL__ID_KEY is for an instance. It is the
// prefix of the Playwright MCP proxy, which had these pools first, so that its
// configurations keep working.
const Prefix = "PW_MCP_PROXY_"

// Default is the name of the pool that exists if none is configured.
const Default = "DEFAULT"

// Config is the configuration of a service.
type Config struct {
	Pools  []Pool            // in the order of their names
	File   string            // the file that was read, or ""
	Global settings.Settings // values that apply to no pool alone
	layers *layers
}

// Pool is one pool. Its Settings are the values that its instances share;
// Instances has all values of each.
type Pool struct {
	Name      string
	IsDefault bool
	settings.Settings
	Instances []settings.Settings
	layers    *layers
}

// Value is a value as it was written, and its source.
type Value struct {
	Key, Text, Source string
	Set               bool // not a default
	Shared            bool // by all instances of the pool
}

// entry is a value and its scope.
type entry struct {
	level    settings.Where
	pool, id string
	row      *settings.Row
	text     string
	source   string
	file     bool
}

// scope is where a value applies.
type scope struct {
	level         settings.Where
	pool, id, key string
}

// layers are the values of all scopes.
type layers struct {
	entries []entry
	index   map[scope]int     // the entry in effect; the environment precedes the file
	tables  map[string]string // pools with a table in the file, and its position
	noPools bool              // no pool is configured
	skipped string            // see SkipLaunch
}

// name returns the key's name as its source writes it.
func (e *entry) name() string {
	if e.file {
		return strings.ToLower(e.row.KeyName())
	}
	return e.row.KeyName()
}

// Problem is one error in the configuration.
type Problem struct {
	What   string
	Source string // where the value was set; "" if it is missing
}

// Error is all errors in the configuration.
type Error struct{ Problems []Problem }

func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.What
		if p.Source != "" {
			lines[i] += " (" + p.Source + ")"
		}
	}
	return strings.Join(lines, "\n")
}

func (e *Error) add(source, format string, args ...any) {
	e.Problems = append(e.Problems, Problem{fmt.Sprintf(format, args...), source})
}

// Path returns the file to read: the named one, else the user's, else the
// system's, else "". A user without a home directory has home "".
func Path(named string, getenv func(string) string, home string) string {
	if named != "" {
		return named
	}
	dir := getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(home, ".config")
	}
	for _, p := range []string{filepath.Join(dir, "btools", "pool.toml"), "/etc/btools/pool.toml"} {
		if !filepath.IsAbs(p) {
			continue
		}
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	return ""
}

// Load reads the file, if there is one, and the environment (as os.Environ
// returns it). The variables in more apply where the environment sets none. Its
// error is an *Error with all problems.
func Load(file string, environ []string, more ...envfile.Variable) (*Config, error) {
	all, bad := &layers{}, &Error{}
	if file != "" {
		all.readFile(file, bad)
	}
	all.readEnvironment(variables(environ, more), bad)
	c := all.resolve(bad)
	c.File, c.Global = file, all.settingsOf("", "")
	if len(bad.Problems) > 0 {
		return nil, bad
	}
	return c, nil
}

// Configures reports whether any of the variables configures pools.
func Configures(environ []string, more ...envfile.Variable) bool {
	return len(variables(environ, more)) > 0
}

// ReadVariables reads a file of variables, and warns if none configures pools. Without a path there are none.
func ReadVariables(path string, log *slog.Logger) ([]envfile.Variable, error) {
	if path == "" {
		return nil, nil
	}
	vars, err := envfile.Read(path)
	if err != nil {
		return nil, &exit.Error{Code: exit.Config, Err: err}
	}
	if !Configures(nil, vars...) {
		log.Warn(path + " sets no variables for pools; they begin with " + Prefix)
	}
	return vars, nil
}

// variables returns the variables that configure pools, sorted by name. The
// environment precedes more, in which the last value counts. An empty variable
// counts as unset.
func variables(environ []string, more []envfile.Variable) []envfile.Variable {
	byName := map[string]envfile.Variable{}
	for _, v := range more {
		v.Source += ": " + v.Name
		byName[v.Name] = v
	}
	for _, kv := range environ {
		if name, value, _ := strings.Cut(kv, "="); value != "" {
			byName[name] = envfile.Variable{Name: name, Value: value, Source: name}
		}
	}
	maps.DeleteFunc(byName, func(name string, v envfile.Variable) bool {
		return !strings.HasPrefix(name, Prefix) || v.Value == ""
	})
	return slices.SortedFunc(maps.Values(byName), func(a, b envfile.Variable) int {
		return strings.Compare(a.Name, b.Name)
	})
}

func (s *layers) readEnvironment(vars []envfile.Variable, bad *Error) {
	for _, v := range vars {
		name, rest := v.Source, strings.TrimPrefix(v.Name, Prefix)
		ok := false
		e := entry{text: v.Value, source: name}
		if rest[:min(1, len(rest))] != "_" {
			e.level = settings.Global
			s.add(e, rest, bad)
			continue
		}
		body := rest[1:]
		if p, tail, two := strings.Cut(body, "__"); two {
			id, key, _ := strings.Cut(tail, "_")
			e.level, e.pool, e.id = settings.Instance, p, id
			s.add(e, key, bad)
			continue
		}
		e.level = settings.Pool
		var key string
		if e.pool, key, ok = splitPool(body); !ok {
			bad.add(name, "unknown key in %s%s", body, suggestion(keyCandidates(body)...))
			continue
		}
		s.add(e, key, bad)
	}
}

// splitPool splits POOL_KEY. Both parts may contain underscores: the longest
// key that matches counts.
func splitPool(body string) (pool, key string, ok bool) {
	for _, k := range slices.AppendSeq(settings.KeyNames(), maps.Keys(settings.Formerly)) {
		if p, fits := strings.CutSuffix(body, "_"+k); fits && len(k) > len(key) {
			pool, key, ok = p, k, true
		}
	}
	return pool, key, ok
}

// keyCandidates returns what could be the key of POOL_KEY.
func keyCandidates(body string) (parts []string) {
	for i := range len(body) {
		if body[i] == '_' {
			parts = append(parts, body[i+1:])
		}
	}
	return parts
}

// elsewhere says what there is for settings that @playwright/mcp has of each browser.
var elsewhere = map[string]string{
	"VIEWPORT_SIZE":      "ARGS with --window-size=WIDTH,HEIGHT sets the size of the window",
	"CAPS":               "--tools of bmcp chooses tools and groups of them",
	"STORAGE_STATE":      "bpool state import reads such a file, and STATE names it",
	"TIMEOUT_ACTION":     "the bounds of tools are in btools-tools(7)",
	"TIMEOUT_NAVIGATION": "the bounds of tools are in btools-tools(7)",
	"EXECUTABLE_PATH":    "BROWSER takes a path",
	"PROXY_SERVER":       "PROXY takes its address",
}

// suggestion proposes the known key that is most similar to one of the names.
func suggestion(names ...string) string {
	best, distance := "", 0
	for _, n := range names {
		if instead := elsewhere[strings.ToUpper(n)]; instead != "" {
			return ": " + instead
		}
		if k := spell.Nearest(strings.ToUpper(n), settings.KeyNames()); k != "" &&
			(best == "" || spell.Distance(strings.ToUpper(n), k) < distance) {
			best, distance = k, spell.Distance(strings.ToUpper(n), k)
			if n == strings.ToLower(n) { // written as in a file
				best = strings.ToLower(k)
			}
		}
	}
	if best == "" {
		return ""
	}
	return ": did you mean " + best + "?"
}

// invalidName says that the name is not valid for a pool.
func invalidName(name string) string {
	guess := ""
	if upper := strings.ToUpper(name); upper != name && validName(upper) {
		guess = ": did you mean " + upper + "?"
	}
	return fmt.Sprintf("%q is not a valid pool name%s A name has capital letters, digits and single underscores",
		name, cmp.Or(guess, "."))
}

// add adds an entry after checking its scope and its key.
func (s *layers) add(e entry, name string, bad *Error) {
	e.row = settings.Named(strings.ToUpper(name))
	if e.row == nil || !e.file && name != strings.ToUpper(name) {
		bad.add(e.source, "unknown key %s%s", name, suggestion(name))
		return
	}
	if e.level != settings.Global && !validName(e.pool) {
		bad.add(e.source, "%s", invalidName(e.pool))
		return
	}
	if e.level == settings.Instance && !isNumber(e.id) {
		bad.add(e.source, "%q is not an instance's ID: they are 0, 1, 2 and so on", e.id)
		return
	}
	if e.row.Where&e.level == 0 {
		e.misplaced(bad)
		return
	}
	if err := e.row.Set(&settings.Settings{}, e.level, e.text, ondisk.Files); err != nil {
		bad.add(e.source, "%s is %q: %v", e.name(), e.row.Shown(e.text), err)
		return
	}
	if s.index == nil {
		s.index = map[scope]int{}
	}
	at := scope{e.level, e.pool, e.id, e.row.KeyName()}
	old, ok := s.index[at]
	if ok && s.entries[old].file == e.file {
		bad.add(e.source, "%s is set twice: remove its former name here, or %s", e.name(), s.entries[old].source)
	}
	if !ok || s.entries[old].file {
		s.index[at] = len(s.entries)
	}
	s.entries = append(s.entries, e)
}

// misplaced reports a key at a level at which it cannot be set, and says where it can.
func (e *entry) misplaced(bad *Error) {
	if e.level != settings.Global {
		which := "a pool"
		if e.level == settings.Instance {
			which = "an instance"
		}
		bad.add(e.source, "%s can't be set for %s", e.name(), which)
		return
	}
	where := "an instance, " + Prefix + "_POOL__ID_" + e.row.KeyName()
	switch isPools := e.row.Where&settings.Keys == settings.Pool; {
	case isPools && e.file:
		where = "a pool, in [pool.POOL]"
	case isPools:
		where = "a pool, " + Prefix + "_POOL_" + e.row.KeyName()
	case e.file:
		where = "an instance, in [pool.POOL.instance.ID]"
	}
	bad.add(e.source, "%s defined globally: set it for %s", e.name(), where)
}

func validName(name string) bool {
	return name != "" && !strings.Contains("_"+name+"_", "__") &&
		strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

func isNumber(id string) bool {
	return id != "" && len(id) <= 5 && strings.Trim(id, "0123456789") == "" && (id == "0" || id[0] != '0')
}

// readFile reads the TOML file: lowercase keys at the top, in [pool.NAME], and
// in [pool.NAME.instance.ID].
func (s *layers) readFile(file string, bad *Error) {
	b, err := os.ReadFile(file)
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		bad.add(file, "cannot read the configuration: %v", err)
		return
	}
	var top map[string]any
	if _, err := toml.Decode(string(b), &top); err != nil {
		var pe toml.ParseError
		if errors.As(err, &pe) {
			bad.add(fmt.Sprintf("%s:%d:%d", file, pe.Position.Line, pe.Position.Col), "malformed TOML: %s", pe.Message)
		} else {
			bad.add(file, "malformed TOML: %v", err)
		}
		return
	}
	s.readTable(top, entry{level: settings.Global, source: file, file: true}, "", bad)
}

// readTable reads the keys of a table and its subtables.
func (s *layers) readTable(t map[string]any, e entry, path string, bad *Error) {
	for _, name := range slices.Sorted(maps.Keys(t)) {
		at := e
		full := path + name
		at.source = e.source + ": " + full
		if sub, ok := t[name].(map[string]any); ok {
			switch {
			case e.level == settings.Global && name == "pool", e.level == settings.Pool && name == "instance":
				for _, n := range slices.Sorted(maps.Keys(sub)) {
					below, ok := sub[n].(map[string]any)
					inner := e
					if inner.level = settings.Pool; e.level == settings.Pool {
						inner.level, inner.id = settings.Instance, n
					} else {
						inner.pool = n
					}
					if !ok {
						bad.add(at.source+"."+n, "%s.%s is not a table", full, n)
						continue
					}
					if inner.level == settings.Pool && !validName(n) {
						bad.add(at.source+"."+n, "%s", invalidName(n))
						continue
					}
					if inner.level == settings.Instance && (!isNumber(n) || len(below) == 0) {
						bad.add(at.source+"."+n,
							"[%s.%s] is not an instance, or has no keys: instances are 0, 1, 2 and so on", full, n)
						continue
					}
					if inner.level == settings.Pool {
						if s.tables == nil {
							s.tables = map[string]string{}
						}
						s.tables[n] = at.source + "." + n
					}
					s.readTable(below, inner, full+"."+n+".", bad)
				}
			default:
				bad.add(at.source, "unknown table [%s]", full)
			}
			continue
		}
		text, ok := asText(t[name])
		if k := settings.Named(strings.ToUpper(name)); !ok && k != nil {
			bad.add(at.source, "%s is %v: must be %s, as a string, number, boolean or, for args, a list of strings",
				full, t[name], k.KindOf())
			continue
		}
		if name != strings.ToLower(name) && settings.Named(strings.ToUpper(name)) != nil {
			bad.add(at.source, "unknown key %s: did you mean %s?", full, strings.ToLower(name))
			continue
		}
		if !ok || name != strings.ToLower(name) {
			bad.add(at.source,
				"unknown key %s: keys are lowercase; values are strings, numbers, booleans or, for args, "+
					"lists of strings", full)
			continue
		}
		at.text = text
		s.add(at, name, bad)
	}
}

// asText converts a TOML value to the form that it has in the environment.
func asText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case []any:
		var quoted []string
		for _, w := range v {
			s, ok := w.(string)
			if !ok {
				return "", false
			}
			quoted = append(quoted, "'"+strings.ReplaceAll(s, "'", `'\''`)+"'")
		}
		return strings.Join(quoted, " "), true
	}
	return "", false
}
