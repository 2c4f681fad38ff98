// Package command implements the commands that bproxy and bpool have for states. They
// ask the program that runs the sessions; where none runs, they read and write the
// states of this user themselves.
package command

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
	"btools/lib/client"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/exit"
	"btools/lib/logins"
	"btools/lib/logins/remote"
	"btools/lib/record"
	"btools/lib/spell"
)

// ArgsUsage is the usage of the arguments.
const ArgsUsage = "save|list|show|delete|import|export [NAME|FILE]"

// Records are those that the commands print.
var Records = &cli.Records{Columns: []cli.Column{
	{Head: "STATE", Field: "state.name"}, {Head: "COOKIES", Field: "state.cookie_count"},
	{Head: "EXPIRES", Field: "state.earliest_expiry"}, {Head: "SAVED", Field: "state.saved_at", Spare: 2},
	{Head: "BYTES", Field: "state.size_bytes", Spare: 1}, {Head: "ORIGINS", Field: "state.origins"},
}, Members: map[string]any{"state": logins.Info{}}}

// Flags returns the flags of the commands. from is the placeholder of --from.
func Flags(from string) []ucli.Flag {
	return []ucli.Flag{
		&ucli.StringFlag{Name: "from", Usage: "save the state of `" + from + "`"},
		&ucli.StringFlag{Name: "name", DefaultText: "that of the file", Usage: "import the state as `NAME`"},
	}
}

// Store returns the store of states of this user.
func Store(c *cli.Context) (*logins.Store, error) { return logins.Open(c.Getenv, c.Home()) }

// Offer offers the names of states: those of the program that runs the sessions, at
// its control socket, else those of this user.
func Offer(c *cli.Completion, socket string) {
	if socket == "" {
		store, err := Store(c.Context)
		if err != nil {
			return
		}
		names, _ := store.Names()
		for _, n := range names {
			c.Offer(n, "")
		}
		return
	}
	ctx := context.Background()
	cl, err := control.Dial(ctx, socket)
	if err != nil {
		return
	}
	defer cl.Close()
	answer, _ := api.StateList.Ask(ctx, cl, api.StateRequest{})
	for _, r := range answer.States {
		i := record.Member[logins.Info](r, "state")
		c.Offer(i.Name, spell.Count(i.CookieCount, "cookie"))
	}
}

// OfferOwn offers the names of this user's states.
func OfferOwn(c *cli.Completion) { Offer(c, "") }

// Argument offers the argument of a command for states; names offers their names.
func Argument(names cli.Values) cli.Values {
	return func(c *cli.Completion) {
		switch c.Args()[0] {
		case "import":
			cli.Files(c)
		case "save", "show", "delete", "export":
			names(c)
		}
	}
}

// Dial connects to the program that runs the sessions: the one that the user names, or
// the only one that runs. It returns nil if the user names none and none or several run;
// for save, which only such a program can do, that is an error.
type Dial func(ctx context.Context, save bool) (*control.Client, error)

// Run runs a command. of returns the session or lease that --from names.
func Run(c *cli.Context, dial Dial, of func(from string) api.Of) error {
	args := c.Args()
	word, argument := "", ""
	if len(args) > 0 {
		word = args[0]
	}
	if len(args) == 2 {
		argument = args[1]
	}
	if err := check(c, word, argument); err != nil {
		return err
	}
	ctx := context.Background()
	conn, end, err := connect(ctx, c, dial, word == "save")
	if err != nil {
		return err
	}
	defer end()
	if word == "export" {
		return remote.Export(ctx, conn, argument, c.Stdout)
	}
	var answer api.States
	r := api.StateRequest{Name: argument}
	switch word {
	case "list":
		answer, err = api.StateList.Ask(ctx, conn, r)
	case "show":
		answer, err = api.StateGet.Ask(ctx, conn, r)
	case "delete":
		answer, err = api.StateDelete.Ask(ctx, conn, r)
	case "import":
		answer, err = load(ctx, c, conn, argument)
	case "save":
		r.Of = of(c.String("from"))
		answer, err = api.StateSave.Ask(ctx, conn, r)
	}
	if err != nil {
		return err
	}
	for _, bad := range answer.Bad {
		c.Log.Warn(bad)
	}
	for _, lost := range answer.Lost {
		c.Log.Warn("not in the state: " + lost)
	}
	return c.Out.Print(nil, answer.States...)
}

// check refuses wrong usage of a command with at most one argument.
func check(c *cli.Context, word, argument string) error {
	name := argument
	switch {
	case c.IsSet("from") && word != "save":
		return c.UsageError("--from applies to save")
	case c.IsSet("name") && word != "import":
		return c.UsageError("--name applies to import")
	case word == "list" && len(c.Args()) == 1:
		return nil
	case argument == "" || word == "list":
		return c.UsageError("expected list, save NAME, show NAME, delete NAME, import FILE or export NAME")
	}
	switch word {
	case "show", "delete":
	case "import":
		name = importName(c, argument)
	case "export":
		if c.IsSet("field") || c.IsSet("output") {
			return c.UsageError("export prints the state itself: --output and --field do not apply")
		}
	case "save":
		if !c.IsSet("from") {
			return c.UsageError("save needs --from")
		}
	default:
		return c.UsageError("%q is not list, save, show, delete, import or export", word)
	}
	if err := logins.CheckName(name); err != nil {
		return c.UsageError("%v", err)
	}
	return nil
}

// connect connects to whatever resolves the names: the program that runs the sessions,
// or this one.
func connect(ctx context.Context, c *cli.Context, dial Dial, save bool) (conn control.Caller, end func(), err error) {
	running, err := dial(ctx, save)
	if err != nil {
		return nil, nil, err
	}
	if running != nil {
		return client.Patient{Caller: running, Log: c.Log}, running.Close, nil
	}
	store, err := Store(c)
	if err != nil {
		return nil, nil, err
	}
	local := remote.Local(store)
	return local, local.Close, nil
}

// importName returns the name of what is imported.
func importName(c *cli.Context, path string) string {
	if c.IsSet("name") {
		return c.String("name")
	}
	return strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
}

// load imports a storageState of Playwright.
func load(ctx context.Context, c *cli.Context, conn control.Caller, path string) (api.States, error) {
	f, err := os.Open(path)
	if err != nil {
		return api.States{}, exit.Errorf(exit.Data, "cannot import: %v", err)
	}
	defer f.Close()
	answer, err := remote.Import(ctx, conn, importName(c, path), f)
	var unread *remote.ReadError
	if errors.As(err, &unread) {
		return answer, exit.Errorf(exit.Data, "cannot import: %v", err)
	}
	return answer, err
}
