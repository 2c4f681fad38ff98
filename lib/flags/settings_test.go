package flags_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"btools/lib/cli"
	"btools/lib/flags"
	"btools/lib/pool/config"
	"btools/lib/settings"
)

// program runs a program whose flags are those of a place, and returns its exit code
// and all that it prints.
func program(t *testing.T, at settings.Where, do func(*cli.Context) error, args ...string) (code int, said string) {
	t.Helper()
	out, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	code = cli.Run(&cli.Env{Args: append([]string{"bprog"}, args...), Stdin: null, Stdout: out, Stderr: out,
		Getenv: func(string) string { return "" }}, &cli.Program{Command: cli.Command{Name: "bprog",
		Flags: flags.Settings(at, settings.Sessions, "Sessions:", "session"), Do: do}})
	b, _ := os.ReadFile(out.Name())
	return code, string(b)
}

// A row of the table is a key of pools, a flag with its help and completion, and a
// member of a request.
func TestNewSetting(t *testing.T) {
	row := &settings.Row{Name: "novelty", Of: settings.Sessions, Default: "7", Low: 1, High: 9, Context: true,
		NotJoined: "it is new", Field: func(s *settings.Settings) any { return &s.MaxUses },
		Where: settings.Global | settings.Pool | settings.Instance | settings.Share | settings.Request,
		Usage: "have `N` of what is new in a {session}"}
	old := settings.Table
	settings.Table = func() []*settings.Row { return append(slices.Clone(old()), row) }
	defer func() { settings.Table = old }()

	const pool = config.Prefix + "_A_INSTANCES=1"
	c, err := config.Load("", []string{pool, config.Prefix + "_A_ISOLATION=context", config.Prefix + "_A__0_NOVELTY=3"})
	if err != nil {
		t.Fatal(err)
	}
	var shown config.Value
	for _, v := range c.Pools[0].InstanceValues("0", false) {
		if v.Key == "NOVELTY" {
			shown = v
		}
	}
	if c.Pools[0].Instances[0].MaxUses != 3 || shown.Text != "3" || !strings.HasPrefix(shown.Source, "instance, ") {
		t.Errorf("bpool has %d, and check prints %+v", c.Pools[0].Instances[0].MaxUses, shown)
	}
	file := t.TempDir() + "/pool.toml"
	os.WriteFile(file, []byte("novelty = 10\nnovelti = 1\n[pool.A]\ninstances = 1\n"), 0o600)
	for _, says := range []string{`novelty is "10": must be a number from 1 to 9 (` + file + ": novelty)",
		"unknown key novelti: did you mean novelty?"} {
		if _, err := config.Load(file, nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
	if _, err := config.Load("", []string{pool, config.Prefix + "NOVELTY=3"}); err == nil ||
		!strings.Contains(err.Error(), `it applies only to instances with isolation = "context"`) {
		t.Error(err)
	}

	if _, help := program(t, settings.Share, nil, "--help"); !strings.Contains(help,
		"--novelty N") || !strings.Contains(help, "have N of what is new in a session (default: 7)") {
		t.Errorf("help says\n%s", help)
	}
	if _, words := program(t, settings.Share, nil, "__complete", "bprog --nov"); !strings.Contains(words, "--novelty") {
		t.Errorf("completion offers %q", words)
	}
	for args, want := range map[string]int{"": 7, "--novelty=9": 9} {
		var got settings.Settings
		code, said := program(t, settings.Share, func(c *cli.Context) (err error) {
			got, err = flags.ReadSettings(c, settings.Share)
			return err
		}, strings.Fields(args)...)
		if code != 0 || got.MaxUses != want {
			t.Errorf("%q: exit %d, %d, %s; want %d", args, code, got.MaxUses, said, want)
		}
	}
	code, said := program(t, settings.Share, func(c *cli.Context) error {
		_, err := flags.ReadSettings(c, settings.Share)
		return err
	}, "--novelty=0")
	if code != 64 || !strings.Contains(said, `--novelty is "0": must be a number from 1 to 9`) {
		t.Errorf("exit %d, %s", code, said)
	}

	words := func(c *cli.Context) error {
		s, err := flags.ReadSettings(c, settings.Share)
		if err == nil && !slices.Equal(s.Grant, []string{"camera", "midi"}) {
			t.Errorf("--grant camera and midi are %q", s.Grant)
		}
		return err
	}
	if code, said := program(t, settings.Share, words, "--grant=camera", "--grant=midi"); code != 0 {
		t.Errorf("exit %d, %s", code, said)
	}
	if code, said := program(t, settings.Share, words, "--grant=camra"); code != 64 ||
		!strings.Contains(said, "did you mean camera?") {
		t.Errorf("exit %d, %s", code, said)
	}

	var sent bytes.Buffer
	if code, said := program(t, settings.Request, func(c *cli.Context) error {
		v, err := flags.GivenSettings(c, settings.Request)
		if err != nil {
			return err
		}
		return json.NewEncoder(&sent).Encode(v)
	}, "--novelty=5", "--throttle=2s"); code != 0 || sent.String() != `{"novelty":5,"throttle_ms":2000}`+"\n" {
		t.Errorf("exit %d, %s%s", code, said, sent.String())
	}
	var v settings.Values
	got := settings.Settings{}
	err = json.Unmarshal(sent.Bytes(), &v)
	if err != nil || v.Apply(&got, settings.Request) != nil || got.MaxUses != 5 {
		t.Errorf("%v, %+v", err, got)
	}
}
