package command

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"btools/lib/cli"
	"btools/lib/find"
	"btools/lib/pool/config"
	"btools/lib/record"
)

// setting is the record member that check prints.
type setting struct {
	Pool     string `json:"pool"`
	Instance string `json:"instance,omitempty"`
	Key      string `json:"key"`
	Value    string `json:"value"`
	Source   string `json:"source"`
}

// Settings are the records that Check prints.
var Settings = &cli.Records{Columns: []cli.Column{
	{Head: "POOL", Field: "setting.pool"}, {Head: "INSTANCE", Field: "setting.instance"},
	{Head: "KEY", Field: "setting.key"}, {Head: "VALUE", Field: "setting.value"},
	{Head: "SOURCE", Field: "setting.source", Spare: 1},
}, Members: map[string]any{"setting": setting{}}}

// Check prints each value that is set, one record each: of every pool, and of
// instances that have their own. With --all it prints every value of every
// instance. A service without pools has the values that are of no pool.
func Check(c *cli.Context) error {
	cfg, err := loadServed(c)
	if err != nil {
		return err
	}
	all := c.Bool("all")
	var rs []*record.Record
	add := func(pool, instance string, values []config.Value) {
		for _, v := range values {
			// The number of instances is always shown.
			if !all && !v.Set && v.Key != "INSTANCES" {
				continue
			}
			rs = append(rs, record.Of("setting", setting{pool, instance, v.Key, v.Text, v.Source}))
		}
	}
	if len(cfg.Pools) == 0 {
		add("", "", cfg.Values())
	}
	for _, p := range cfg.Pools {
		values := p.Values()
		if all { // instances print the others
			values = slices.DeleteFunc(values, func(v config.Value) bool { return !v.Shared })
		}
		add(p.Name, "", values)
		for _, i := range p.Instances {
			add(p.Name, i.ID, p.InstanceValues(i.ID, !all))
		}
	}
	if err := c.Out.Print(nil, rs...); err != nil {
		return err
	}
	warnMissing(c, cfg)
	if !all && c.Out.Table() {
		c.Log.Info("all other settings have their defaults; bpool check --all shows them")
	}
	return nil
}

// warnMissing warns of browsers that are not installed.
func warnMissing(c *cli.Context, cfg *config.Config) {
	installed, _, _ := find.Browsers(context.Background(), find.Options{Getenv: c.Getenv, Home: c.Home()})
	has := func(browser string) bool {
		if filepath.IsAbs(browser) {
			_, err := find.Inspect(browser, "")
			return err == nil
		}
		return slices.ContainsFunc(installed, func(b record.Browser) bool {
			return browser == "" || b.Type == record.Canonical(browser)
		})
	}
	for _, p := range cfg.Pools {
		missing := map[string][]string{} // IDs of instances by browser
		var browsers []string
		for _, i := range p.Instances {
			if !i.Launch || i.Extension || i.WSLWindows || has(i.Browser) { // browsers on Windows are not checked
				continue
			}
			if missing[i.Browser] == nil {
				browsers = append(browsers, i.Browser)
			}
			missing[i.Browser] = append(missing[i.Browser], i.ID)
		}
		for _, b := range browsers {
			what := "no " + b + " is installed"
			switch {
			case b == "":
				what = "no browser is installed"
			case filepath.IsAbs(b):
				what = b + " is not an executable file"
			}
			ids := missing[b]
			which := "instance " + strings.Join(ids, ", ")
			if n := len(ids); n == len(p.Instances) {
				which = "its instances"
			} else if n > 1 {
				which = "instances " + strings.Join(ids[:min(n, 10)], ", ")
			}
			c.Log.Warn(fmt.Sprintf("pool %s: %s, so %s can't be launched; bfind lists the installed browsers", p.Name,
				what, which))
		}
	}
}
