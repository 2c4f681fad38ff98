package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"btools/lib/settings"
	"btools/lib/settings/ondisk"
)

// lookup returns the entry that applies to a key of an instance, or with id ""
// of a pool. It returns nil if the default applies.
func (s *layers) lookup(poolName, id, keyName string) *entry {
	for _, at := range []scope{{settings.Instance, poolName, id, keyName},
		{settings.Pool, poolName, "", keyName}, {settings.Global, "", "", keyName}} {
		if i, ok := s.index[at]; ok {
			return &s.entries[i]
		}
	}
	return nil
}

// resolve builds the configuration from the entries.
func (s *layers) resolve(bad *Error) *Config {
	names := s.tables // by pool: where it is first named
	if names == nil {
		names = map[string]string{}
	}
	for _, e := range s.entries {
		if e.level != settings.Global && names[e.pool] == "" {
			names[e.pool] = e.source
		}
	}
	c := &Config{layers: s}
	if len(names) == 0 {
		s.noPools = true
		p := s.pool(Default, 1, bad)
		p.IsDefault = true
		c.Pools = []Pool{p}
		c.checkInstances(bad)
		s.checkUnused(c, bad)
		return c
	}
	var defaults []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		n, isDefault := 0, false
		if e := s.lookup(name, "", "INSTANCES"); e == nil && s.tables[name] != "" {
			bad.add(names[name], "Pool missing INSTANCES configuration: %s needs instances = N in [pool.%s]", name,
				name)
		} else if e == nil {
			bad.add(names[name], "Pool missing INSTANCES configuration: %s needs %s_%s_INSTANCES=N", name, Prefix, name)
		} else if k, err := settings.ParseCount(e.text, 1, settings.MaxInstances); err != nil {
			bad.add(e.source, "%s is %q: %v", e.name(), e.text, err)
		} else {
			n = k
		}
		if e := s.lookup(name, "", "IS_DEFAULT"); e != nil {
			var err error
			if isDefault, err = settings.ParseBool(e.text); err != nil {
				bad.add(e.source, "%s is %q: %v", e.name(), e.text, err)
			}
		}
		p := s.pool(name, n, bad)
		if p.IsDefault = isDefault; isDefault {
			defaults = append(defaults, name)
		}
		c.Pools = append(c.Pools, p)
	}
	c.checkInstances(bad)
	s.checkUnused(c, bad)
	switch {
	case len(defaults) > 1:
		for _, d := range defaults {
			bad.add(s.lookup(d, "", "IS_DEFAULT").source, "Multiple default pools defined: %s is one of %v", d,
				defaults)
		}
	case len(defaults) == 0 && len(c.Pools) == 1 && s.lookup(c.Pools[0].Name, "", "IS_DEFAULT") == nil:
		c.Pools[0].IsDefault = true // it is the only pool
	case len(defaults) == 0:
		how := "set " + Prefix + "_POOL_IS_DEFAULT=true"
		if len(s.tables) > 0 {
			how = "set is_default = true in [pool.POOL]"
		}
		bad.add("", "No default pool defined: %s for one of %s", how,
			strings.Join(slices.Sorted(maps.Keys(names)), ", "))
	}
	return c
}

// Check checks the instances again, for example after a pool was resized. The
// error is an *Error.
func (c *Config) Check() error {
	bad := &Error{}
	c.checkInstances(bad)
	if len(bad.Problems) > 0 {
		return bad
	}
	return nil
}

// DropDefault removes the pool that exists only because none is configured.
func (c *Config) DropDefault() {
	if len(c.Pools) == 1 && c.Pools[0].layers.noPools {
		c.Pools = nil
	}
}

// SkipLaunch stops bpool from launching browsers of this type unless LAUNCH is
// set: clients bring their own.
func (c *Config) SkipLaunch(browser string) {
	for _, p := range c.Pools {
		p.layers.skipped = browser
		for i := range p.Instances {
			p.Instances[i].Launch = p.layers.settingsOf(p.Name, p.Instances[i].ID).Launch
		}
	}
}

// checkInstances reports instances that no browser can be launched for.
func (c *Config) checkInstances(bad *Error) {
	c.checkIsolation(bad)
	dirs := map[string]string{}
	for _, p := range c.Pools {
		reported := false
		for _, i := range p.Instances {
			if !i.Launch {
				continue
			}
			if i.Browser == "webkit" {
				e := p.layers.lookup(p.Name, i.ID, "LAUNCH")
				bad.add(e.source, "%s is %q for %s/%s, whose browser is webkit: bpool cannot launch it", e.name(),
					e.text, p.Name, i.ID)
			}
			at := p.Name + "/" + i.ID
			if other, ok := dirs[i.Profile]; ok && i.Profile != "" && !reported {
				e := p.layers.lookup(p.Name, i.ID, "USER_DATA_DIR")
				bad.add(e.source, "%s %s is set for both %s and %s: only one browser at a time can use a profile",
					e.name(), i.Profile, other, at)
				reported = true
			}
			dirs[i.Profile] = at
		}
	}
}

// pool builds a pool with n instances; n is 0 if the number is not known.
func (s *layers) pool(name string, n int, bad *Error) Pool {
	p := Pool{Name: name, layers: s, Settings: s.settingsOf(name, "")}
	aliases := map[string]string{}
	for i := range n {
		set := s.settingsOf(name, strconv.Itoa(i))
		p.Instances = append(p.Instances, set)
		if set.Alias == "" {
			continue
		}
		source := s.lookup(name, set.ID, "ALIAS").source
		if isDigits(set.Alias) {
			bad.add(source, "alias %q looks like an instance's ID: choose one that is not all digits", set.Alias)
		}
		if other, ok := aliases[set.Alias]; ok {
			bad.add(source, "Duplicate alias in pool %s: %q is also the alias of instance %s", name, set.Alias, other)
		}
		aliases[set.Alias] = set.ID
	}
	for _, e := range s.entries {
		if e.level == settings.Instance && e.pool == name && n > 0 {
			if id, _ := strconv.Atoi(e.id); id >= n {
				bad.add(e.source, "Invalid instance ID in override: pool %s has INSTANCES=%d, so IDs 0 to %d, not %s",
					name, n, n-1, e.id)
			}
		}
	}
	return p
}

func isDigits(s string) bool {
	for _, r := range s {
		if r < '0' || r > '9' {
			return false
		}
	}
	return true
}

// settingsOf returns the settings of an instance, or with id "" of its pool.
func (s *layers) settingsOf(pool, id string) settings.Settings {
	set := settings.Settings{ID: id}
	for _, r := range settings.Rows(settings.Keys) {
		if v := s.value(pool, id, r); v.Text != "" {
			r.Set(&set, settings.Global, s.text(pool, id, r, v), ondisk.Files) // checked when it was added
		}
	}
	if set.Extension {
		return asJoined(set)
	}
	return set
}

// text returns the whole of a value that is shown without its secrets.
func (s *layers) text(pool, id string, r *settings.Row, v Value) string {
	if e := s.lookup(pool, id, r.KeyName()); e != nil {
		return e.text
	}
	return v.Text
}

// value returns the value of a key and its source.
func (s *layers) value(pool, id string, r *settings.Row) Value {
	name := r.KeyName()
	if e := s.lookup(pool, id, name); e != nil {
		return Value{name, r.Shown(e.text), fmt.Sprintf("%v, %s", e.level, e.source), true,
			r.Where&settings.Instance == 0}
	}
	v := Value{Key: name, Text: r.Default, Source: "default", Shared: r.Where&settings.Instance == 0}
	if name == "BROWSER" && s.noPools {
		v.Text, v.Source = "", "default: the best installed browser" // nobody has chosen another
	}
	if e := s.lookup(pool, id, "LAUNCH"); name == "BROWSER" && e != nil && e.text == "extension" {
		v.Text, v.Source = "", "the one that joins" // whichever that is
	}
	if name == "LAUNCH" && s.value(pool, id, settings.Named("BROWSER")).Text == "webkit" {
		v.Text, v.Source = "false", "default for webkit" // DevTools cannot drive it
	}
	if name == "LAUNCH" && s.skipped != "" && s.value(pool, id, settings.Named("BROWSER")).Text == s.skipped {
		v.Text, v.Source = "false", "default for "+s.skipped+" here"
	}
	return v
}

// Resize returns the pool with another number of instances.
func (p Pool) Resize(n int) Pool {
	q := p.layers.pool(p.Name, n, &Error{})
	q.IsDefault = p.IsDefault
	return q
}

// Values returns the pool's settings with their sources. Settings that
// instances can override are included only if they are set.
func (p *Pool) Values() (values []Value) {
	for _, r := range settings.Rows(settings.Keys) {
		v, name := p.layers.value(p.Name, "", r), r.KeyName()
		switch {
		case r.Where&settings.Instance != 0:
			if !v.Set {
				continue
			}
		case name == "IS_DEFAULT" && p.IsDefault && !v.Set:
			v.Text, v.Source = "true", "default of the only pool"
		case name == "INSTANCES" && !v.Set:
			v.Text = strconv.Itoa(len(p.Instances))
		}
		values = append(values, v)
	}
	return values
}

// Values returns the settings that apply to no pool alone, with their sources. Those of instances are included only if
// they are set.
func (c *Config) Values() (values []Value) {
	for _, r := range settings.Rows(settings.Global) {
		if v := c.layers.value("", "", r); v.Set || v.Shared {
			values = append(values, v)
		}
	}
	return values
}

// InstanceValues returns an instance's settings with their sources, or only
// those that are set for the instance itself.
func (p *Pool) InstanceValues(id string, own bool) (values []Value) {
	for _, r := range settings.Rows(settings.Keys) {
		_, set := p.layers.index[scope{settings.Instance, p.Name, id, r.KeyName()}]
		if r.Where&settings.Instance != 0 && (set || !own) {
			values = append(values, p.layers.value(p.Name, id, r))
		}
	}
	return values
}
