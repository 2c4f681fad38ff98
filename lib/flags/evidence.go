package flags

import (
	"path/filepath"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
	"btools/lib/evidence"
)

// Evidence are the flags that have browsers recorded while CMD runs.
func Evidence(category string) []ucli.Flag {
	return []ucli.Flag{
		&ucli.StringFlag{Name: "evidence", Category: category,
			Usage: "if CMD fails, leave in `DIR` the requests (HAR), the console, a film and the last image of each " +
				"page"},
		&ucli.BoolFlag{Name: "evidence-always", Category: category,
			Usage: "with --evidence: leave them even if CMD does not fail"},
		&ucli.BoolFlag{Name: "evidence-logins", Category: category,
			Usage: "with --evidence: the requests have cookies and passwords, too"},
	}
}

// ReadEvidence reads the flags of Evidence; nil: nothing is recorded.
func ReadEvidence(c *cli.Context) (*evidence.Evidence, error) {
	switch {
	case !c.IsSet("evidence") && c.IsSet("evidence-always"):
		return nil, c.UsageError("--evidence-always needs --evidence DIR")
	case !c.IsSet("evidence") && c.IsSet("evidence-logins"):
		return nil, c.UsageError("--evidence-logins needs --evidence DIR")
	case !c.IsSet("evidence"):
		return nil, nil
	case c.Command == nil:
		return nil, c.UsageError("--evidence needs a command, whose failure it is for: -- CMD")
	case c.String("evidence") == "":
		return nil, c.UsageError("--evidence is a directory, not %q", "")
	}
	dir, err := filepath.Abs(c.String("evidence"))
	if err == nil {
		err = evidence.Check(dir)
	}
	return &evidence.Evidence{Dir: dir, Always: c.Bool("evidence-always"),
		Logins: c.Bool("evidence-logins"), Log: c.Log}, err
}
