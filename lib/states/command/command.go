// Package command implements the commands that bproxy and bpool have for
// states: all but save, which asks the running program.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
	"btools/lib/exit"
	"btools/lib/record"
	"btools/lib/states"
)

// ArgsUsage is the usage of the arguments.
const ArgsUsage = "save|list|show|delete|import|export [NAME|FILE]"

var columns = []cli.Column{
	{Head: "STATE", Field: "state.name"}, {Head: "COOKIES", Field: "state.cookie_count"},
	{Head: "EXPIRES", Field: "state.earliest_expiry"}, {Head: "SAVED", Field: "state.saved_at", Spare: 2},
	{Head: "BYTES", Field: "state.size_bytes", Spare: 1}, {Head: "ORIGINS", Field: "state.origins"},
}

// Flags returns the flags of the commands. from is the placeholder of --from.
func Flags(from string) []ucli.Flag {
	return []ucli.Flag{
		&ucli.StringFlag{Name: "from", Usage: "save the state of `" + from + "`"},
		&ucli.StringFlag{Name: "name", DefaultText: "that of the file", Usage: "import the state as `NAME`"},
	}
}

// Store returns the store of states of this user.
func Store(c *cli.Context) (*states.Store, error) { return states.Open(c.Getenv, c.Home()) }

// Saved is the answer to a request to save a state.
type Saved struct {
	States []*record.Record `json:"states"`
	Lost   []string         `json:"lost,omitempty"` // what could not be read
}

// NewSaved returns the answer about a state.
func NewSaved(i states.Info, lost []string) Saved { return Saved{[]*record.Record{recordOf(i)}, lost} }

func recordOf(i states.Info) *record.Record {
	r := record.New()
	r.MustSet("state", i)
	return r
}

// Run runs a command. save asks the running program to save the state of a
// session or lease.
func Run(c *cli.Context, save func(name, from string) (Saved, error)) error {
	out, err := c.Output(columns, cli.Schema(map[string]any{"state": states.Info{}}), nil)
	if err != nil {
		return err
	}
	args := c.Args()
	word, argument := "", ""
	if len(args) > 0 {
		word = args[0]
	}
	if len(args) == 2 {
		argument = args[1]
	}
	switch {
	case c.IsSet("from") && word != "save":
		return c.UsageError("--from applies to save")
	case c.IsSet("name") && word != "import":
		return c.UsageError("--name applies to import")
	case word == "list" && len(args) == 1:
	case argument != "" && word != "list":
	default:
		return c.UsageError("expected list, save NAME, show NAME, delete NAME, import FILE or export NAME")
	}
	store, err := Store(c)
	if err != nil {
		return err
	}
	var answer Saved
	switch word {
	case "list":
		answer, err = list(c, store)
	case "show":
		answer, err = describe(store, argument)
	case "delete":
		if answer, err = describe(store, argument); err != nil { // a damaged one can be deleted
			answer = Saved{}
		}
		err = store.Delete(context.Background(), argument)
	case "import":
		answer, err = load(c, store, argument)
	case "export":
		return export(c, store, argument)
	case "save":
		if !c.IsSet("from") {
			return c.UsageError("save needs --from")
		}
		if err := states.CheckName(argument); err != nil {
			return c.UsageError("%v", err)
		}
		answer, err = save(argument, c.String("from"))
	default:
		return c.UsageError("%q is not list, save, show, delete, import or export", word)
	}
	if err != nil {
		return err
	}
	for _, lost := range answer.Lost {
		c.Log.Warn("not in the state: " + lost)
	}
	for _, r := range answer.States {
		if err := out.Write(r); err != nil {
			return err
		}
	}
	return out.Close()
}

func list(c *cli.Context, store *states.Store) (Saved, error) {
	all, bad, err := store.List(context.Background())
	for _, err := range bad {
		c.Log.Warn(err.Error())
	}
	var answer Saved
	for _, i := range all {
		answer.States = append(answer.States, recordOf(i))
	}
	return answer, err
}

func describe(store *states.Store, name string) (Saved, error) {
	i, err := store.Describe(name)
	if err != nil {
		return Saved{}, err
	}
	return NewSaved(i, nil), nil
}

// maxImport bounds the file that is imported, in bytes.
const maxImport = 1 << 30

// load imports a storageState of Playwright.
func load(c *cli.Context, store *states.Store, path string) (Saved, error) {
	name := c.String("name")
	if !c.IsSet("name") {
		name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}
	if err := states.CheckName(name); err != nil {
		return Saved{}, c.UsageError("%v", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return Saved{}, exit.Errorf(exit.Data, "cannot import: %v", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxImport+1))
	if err == nil && len(b) > maxImport {
		err = fmt.Errorf("it has more than %d MiB", maxImport>>20)
	}
	var state *states.State
	var dropped []string
	if err == nil {
		state, dropped, err = states.Parse(b)
	}
	if err != nil {
		return Saved{}, exit.Errorf(exit.Data, "cannot import %s: %v", path, err)
	}
	if err := store.Save(context.Background(), name, state); err != nil {
		return Saved{}, err
	}
	answer, err := describe(store, name)
	answer.Lost = dropped
	return answer, err
}

// export prints a state as Playwright reads it.
func export(c *cli.Context, store *states.Store, name string) error {
	if c.IsSet("field") || c.IsSet("output") {
		return c.UsageError("export prints the state itself: --output and --field do not apply")
	}
	state, err := store.Load(name)
	if err != nil {
		return err
	}
	if _, err := c.Stdout.Write(state.Export()); err != nil {
		return errors.New("cannot write the state: " + err.Error())
	}
	return nil
}
