package flags

import (
	"path/filepath"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
	"btools/lib/evidence"
	"btools/lib/secrets"
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
		SecretsFlag(category),
	}
}

// SecretsFlag returns the flag that names a file of secrets that no record has.
func SecretsFlag(category string) ucli.Flag {
	return &ucli.StringFlag{Name: "secrets", Category: category,
		Usage: "write {{NAME}} for each value in `FILE`, lines of NAME=VALUE, as bmcp --secrets has it"}
}

// ReadSecrets reads the file of SecretsFlag; nil: there is none.
func ReadSecrets(c *cli.Context) (*secrets.Set, error) {
	if !c.IsSet("secrets") {
		return nil, nil
	}
	return secrets.Read(c.String("secrets"))
}

// ReadEvidence reads the flags of Evidence; nil: nothing is recorded.
func ReadEvidence(c *cli.Context) (*evidence.Evidence, error) {
	switch {
	case !c.IsSet("evidence") && c.IsSet("evidence-always"):
		return nil, c.UsageError("--evidence-always needs --evidence DIR")
	case !c.IsSet("evidence") && c.IsSet("evidence-logins"):
		return nil, c.UsageError("--evidence-logins needs --evidence DIR")
	case !c.IsSet("evidence") && c.IsSet("secrets") && !c.IsSet("trace"):
		return nil, c.UsageError("--secrets is for what is recorded: it needs --evidence DIR")
	case !c.IsSet("evidence"):
		return nil, nil
	case c.Command == nil:
		return nil, c.UsageError("--evidence needs a command, whose failure it is for: -- CMD")
	case c.String("evidence") == "":
		return nil, c.UsageError("--evidence is a directory, not %q", "")
	}
	if _, err := ReadSecrets(c); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(c.String("evidence"))
	file := c.String("secrets")
	if file != "" && err == nil {
		file, err = filepath.Abs(file)
	}
	if err == nil {
		err = evidence.Check(dir)
	}
	return &evidence.Evidence{Dir: dir, Secrets: file, Always: c.Bool("evidence-always"),
		Logins: c.Bool("evidence-logins"), Log: c.Log}, err
}
