package flags

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
	"btools/lib/exit"
	"btools/lib/settings"
	"btools/lib/settings/ondisk"
)

// Settings returns the flags of the settings that a program has at this place and that
// are about the same: session is what it calls one.
func Settings(at settings.Where, of settings.Of, category, session string) (all []ucli.Flag) {
	for _, r := range settings.Rows(at) {
		if r.Of == of {
			all = append(all, flagOf(r, at, category, session))
		}
	}
	return all
}

// flagOf returns the flag of a setting.
func flagOf(r *settings.Row, at settings.Where, category, session string) ucli.Flag {
	usage, shown := r.UsageAt(at, session)
	var env []string
	if r.Variable != "" {
		env = []string{r.Variable}
	}
	var s settings.Settings
	if r.Field == nil {
		return &ucli.BoolFlag{Name: r.Name, Category: category, Usage: usage}
	}
	if d := r.DefaultAt(at); d != "" {
		r.Set(&s, at, d, settings.Files{}) // a test reads all defaults
	}
	switch p := r.Field(&s).(type) {
	case *bool, **bool:
		return &ucli.BoolFlag{Name: r.Name, Category: category, Usage: usage}
	case *int:
		return &ucli.IntFlag{Name: r.Name, Category: category, Usage: usage, Value: *p, DefaultText: shown}
	case *time.Duration:
		return &ucli.DurationFlag{Name: r.Name, Category: category, Usage: usage, Value: *p, DefaultText: shown}
	case *[]string:
		return &ucli.StringSliceFlag{Name: r.Name, Category: category, Usage: usage}
	}
	return &ucli.StringFlag{Name: r.Name, Category: category, Usage: usage, Value: r.DefaultAt(at), DefaultText: shown,
		EnvVars: env}
}

// ReadSettings reads the flags of the settings at a place, and gives the others their
// defaults there.
func ReadSettings(c *cli.Context, at settings.Where) (s settings.Settings, err error) {
	for _, r := range settings.Rows(at) {
		switch {
		case r.Field == nil:
		case c.IsSet(r.Name):
			err = readSetting(c, r, at, &s)
		case r.DefaultAt(at) != "":
			err = r.Set(&s, at, r.DefaultAt(at), ondisk.Files)
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// GivenSettings returns the settings at a place whose flags are given, and those that
// a variable sets.
func GivenSettings(c *cli.Context, at settings.Where) (settings.Values, error) {
	s, given := settings.Settings{}, settings.Values{}
	for _, r := range settings.Rows(at) {
		if !c.IsSet(r.Name) {
			continue
		}
		if err := readSetting(c, r, at, &s); err != nil {
			return nil, err
		}
		given.Put(r, &s)
	}
	return given, nil
}

// readSetting reads the flag of a setting that is set. Paths are of this directory,
// whoever uses them.
func readSetting(c *cli.Context, r *settings.Row, at settings.Where, s *settings.Settings) (err error) {
	text := ""
	switch p := r.Field(s).(type) {
	case *time.Duration:
		*p = c.Duration(r.Name)
		text = p.String()
		err = r.Check(s, at, ondisk.Files)
	case *int:
		*p = c.Int(r.Name)
		text = fmt.Sprint(*p)
		err = r.Check(s, at, ondisk.Files)
	case *[]string:
		*p = c.StringSlice(r.Name)
		text = strings.Join(*p, ", ")
		for i, dir := range *p {
			if r.Dirs || r.Contents {
				(*p)[i], err = filepath.Abs(dir)
			}
			if err != nil {
				return err
			}
		}
		if err = r.Check(s, at, ondisk.Files); err != nil && (r.Dirs || r.Contents) {
			return exit.Errorf(exit.Config, "--%s: %w", r.Name, err)
		}
	default:
		text = c.String(r.Name)
		given := text
		if r.Path && given != "" {
			if given, err = filepath.Abs(given); err != nil {
				return err
			}
		}
		err = r.Set(s, at, given, ondisk.Files)
	}
	if err == nil {
		return nil
	}
	name := "--" + r.Name
	if r.Variable != "" && !c.Given(r.Name) {
		name = r.Variable
	}
	return c.UsageError("%s is %q: %w", name, r.Shown(text), err)
}
