package command

import (
	"context"

	"btools/lib/cli"
	"btools/lib/client"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/flags"
	"btools/lib/launch/options"
	"btools/lib/record"
)

// List prints the status of every proxy.
func List(c *cli.Context) error {
	ps, err := client.Any.All(c.State())
	if err != nil {
		return err
	}
	for _, p := range ps {
		r, err := api.Status.Ask(context.Background(), p, api.Of{})
		if err != nil {
			c.Log.Warn(err.Error())
			r = p.Record
		}
		rs := []*record.Record{r}
		if p.Extension {
			rs = append(rs, instancesOf(p)...)
		}
		if err := c.Out.Write(rs...); err != nil {
			return err
		}
	}
	return c.Out.Close()
}

// Status, Stop and Restart send one proxy a request and print its status; Launch sends the options of the flags.
var (
	Status  = requests(api.Status, none)
	Stop    = requests(api.Stop, none)
	Restart = requests(api.Restart, none)
	Launch  = requests(api.Launch, func(c *cli.Context) (options.Options, error) {
		o, err := flags.ReadBrowser(c)
		if !c.Given("browser") {
			o.Browser = "" // the variable applies to programs that start a proxy
		}
		return o, err
	})
)

func none(*cli.Context) (of api.Of, err error) { return of, err }

// requests returns a command that sends one proxy a request and prints its status.
func requests[P any](method control.Method[P, *record.Record], read func(*cli.Context) (P, error),
) func(*cli.Context) error {
	return func(c *cli.Context) error {
		params, err := read(c)
		if err != nil {
			return err
		}
		if r, err := onInstance(c, control.Method[api.Of, *record.Record](method)); r != nil || err != nil {
			return c.Out.Print(err, r)
		}
		p, err := client.Any.One(c.State(), "", c.Arg())
		if err != nil {
			return err
		}
		r, err := method.Ask(context.Background(), p, params)
		return c.Out.Print(err, r)
	}
}
