package cli

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"
)

func init() { completeBound = 5 * time.Second } // a busy machine

// completed is what a program answers to a shell, line by line.
func completed(t *testing.T, p *Program, line string) []string {
	t.Helper()
	out, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	env := &Env{Args: []string{p.Name, completeWord, line}, Stdout: out,
		Getenv: func(string) string { return "" }}
	if code := Run(env, p); code != 0 {
		t.Errorf("%q: exit %d", line, code)
	}
	b, _ := os.ReadFile(out.Name())
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// What can stand at the end of a line comes from the table of the program: whatever
// is wrong before it, and however it is quoted.
func TestComplete(t *testing.T) {
	t.Parallel()
	p := program(func(*Context) error { t.Error("it runs"); return nil })
	tell := func(c *Completion) {
		c.Offer(strings.Join(append(c.Args(), c.String("url"), c.Word), ";"), "")
	}
	p.Values = map[string]Values{"ARG": Of("one", "it's $(x)", "a\tb", "\x1b[2J", ""), "NAME": tell}
	p.Flags = append(p.Flags, &cli.StringFlag{Name: "list", Usage: "these `NAME,…`"},
		&cli.StringFlag{Name: "mode", Usage: "set it to `on|off` (default: on)"},
		&cli.StringFlag{Name: "secret", Hidden: true}, &cli.StringFlag{Name: "file", Usage: "read `FILE|URL`"})
	p.Commands = append(p.Commands, &Command{Name: "hidden", Hidden: true},
		&Command{Name: "put", ArgsUsage: "[NAME] FILE.txt|DIR", Flags: []cli.Flag{
			&cli.StringFlag{Name: "url", Usage: "open `URL`"}}},
		&Command{Name: "end", ArgsUsage: "all|[NAME…]"},
		&Command{Name: "wrap", TakesCommand: true, Values: map[string]Values{"--": OwnArguments}})
	p.Values["--list"] = Of("x", "y", "xy")
	for _, c := range [][2]string{
		{"bprog li", "values\tli\nlist\tlist them"},
		{"bprog ", "values\t\nlist\tlist them\nserve\tserve it\nconfig\tprint it\nput\nend\nwrap"},
		{"FOO=1 sudo /x/bprog li", "values\tli\nlist\tlist them"},
		{"bprog --mo", "values\t--mo\n--mode\tset it to on|off"},
		{"bprog --mode on --mo", "values\t--mo"},
		{"bprog --arg x --ar", "values\t--ar\n--arg\tpass ARG"},
		{"bprog --sec", "values\t--sec"},
		{"bprog serve --li", "values\t--li\n--listen\tat PORT"},
		{"bprog --mode ", "values\t\non\noff"},
		{"bprog --mode=of", "values\t--mode=of\n--mode=off"},
		{"bprog --list x,", "values\tx,\nx,y\nx,xy"},
		{"bprog --list=x,x", "values\t--list=x,x\n--list=x,xy"},
		{"bprog --arg ", "values\t\none\nit's $(x)"},
		{`bprog --arg it\'s\ \$`, "values\tit's $\nit's $(x)"},
		{`bprog --arg "it's $`, "values\tit's $\nit's $(x)"},
		{"bprog --output ", "values\t\njson\ntable"},
		{"bprog --port x --nonsense --output j", "values\tj\njson"},
		{"bprog --file ~/x", "files\t~/x"},
		{"bprog put --url ~/u a", "files\ta"}, // what it tells begins otherwise
		{"bprog put a b", "files\tb"},
		{"bprog put a b c", "values\tc"},
		{"bprog end a", "values\ta\nall"},
		{"bprog -- ec", "command\tec"},
		{"bprog config -- ec", "command\tec"},
		{"bprog wrap -- --mode o", "values\to\non\noff"},
		{"bprog wrap -- -- o", "command\to"},
		{"bprog", ""},
	} {
		if got := strings.Join(completed(t, p, c[0]), "\n"); got != c[1] {
			t.Errorf("%q: %q, want %q", c[0], got, c[1])
		}
	}
	home, _ := os.UserHomeDir()
	if got := completed(t, p, `bprog put --url ~/u `); !slices.Contains(got, home+"/u;") {
		t.Errorf("the words before say %q, want the URL", got)
	}
	if got := completed(t, p, `bprog put --url "a b" `); !slices.Contains(got, "a b;") {
		t.Errorf("the words before say %q, want the URL", got)
	}
}

// What takes too long is left out: the shell's user waits.
func TestCompletionIsBounded(t *testing.T) {
	t.Parallel()
	p := program(nil)
	end := make(chan struct{})
	defer close(end)
	p.Values = map[string]Values{"TYPE": func(c *Completion) {
		c.Offer("quick", "")
		<-end
		c.Offer("slow", "")
	}}
	began := time.Now()
	got := completed(t, p, "bprog --browser ")
	if took := time.Since(began); took > 10*completeBound || !slices.Equal(got, []string{"values\t", "quick"}) {
		t.Errorf("%q after %v", got, took)
	}
}
