package flags

import (
	"net"
	"os"
	"strings"
	"testing"

	urfave "github.com/urfave/cli/v2"

	"btools/lib/cli"
)

// listen has a program listen as its flags say, and returns the address, its
// code and messages.
func listen(t *testing.T, args ...string) (addr string, code int, errs string) {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	stderr, err := os.Create(t.TempDir() + "/stderr")
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	code = cli.Run(&cli.Env{Args: append([]string{"bprog"}, args...), Stdin: null, Stdout: null, Stderr: stderr,
		Getenv: func(string) string { return "" }}, &cli.Program{Command: cli.Command{Name: "bprog",
		Flags: []urfave.Flag{&urfave.StringFlag{Name: "listen"}, &urfave.StringFlag{Name: "token-file"}},
		Do: func(c *cli.Context) error {
			if _, err := ReadToken(c); err != nil {
				return err
			}
			l, err := Listen(c, "listen", c.String("listen"))
			if err != nil {
				return err
			}
			addr = l.Addr().String()
			return l.Close()
		}}})
	b, _ := os.ReadFile(stderr.Name())
	return addr, code, string(b)
}

func TestListen(t *testing.T) {
	for flag, want := range map[string]string{"0": "127.0.0.1:", "localhost:0": "127.0.0.1:"} {
		if addr, code, errs := listen(t, "--listen", flag); code != 0 || !strings.HasPrefix(addr, want) {
			t.Errorf("--listen %s: exit %d, %s; listens on %q, want %q", flag, code, errs, addr, want)
		}
	}
	for flag, want := range map[string]string{
		"": "HOST:PORT or PORT", "x": "HOST:PORT or PORT", "65536": "HOST:PORT or PORT",
		"127.0.0.1:":   "HOST:PORT or PORT",
		"127.0.0.1:-1": "HOST:PORT or PORT", "example.org:80": "an IP address or localhost",
		"0.0.0.0:0": "--token-file",
		":0":        "--token-file", "[::]:0": "--token-file", "192.0.2.1:0": "--token-file",
	} {
		if addr, code, errs := listen(t, "--listen="+flag); code != 64 || addr != "" || !strings.Contains(errs, want) {
			t.Errorf("--listen %q: exit %d, %s; listens on %q, want 64 and %q", flag, code, errs, addr, want)
		}
	}
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if _, code, errs := listen(t, "--listen", taken.Addr().String()); code != 75 ||
		!strings.Contains(errs, "is taken") {
		t.Errorf("a port that is taken: exit %d, %s; want 75", code, errs)
	}
}

// Other machines are let in with a token alone, which is a word.
func TestTokenFile(t *testing.T) {
	file := t.TempDir() + "/token"
	for token, want := range map[string]int{
		"sesame\n": 0, " sesame ": 0, "": 78, "\n": 78, "two words": 78, "a&b": 78, "a#b": 78, "a\nb": 78,
	} {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		addr, code, errs := listen(t, "--listen", "0.0.0.0:0", "--token-file", file)
		if code != want || code == 0 && !strings.HasPrefix(addr, "0.0.0.0:") {
			t.Errorf("token %q: exit %d, %s; listens on %q, want exit %d", token, code, errs, addr, want)
		}
	}
	if _, code, errs := listen(t, "--listen=0", "--token-file", file+"x"); code != 78 || !strings.Contains(errs, file) {
		t.Errorf("no such file: exit %d, %s; want 78 and its name", code, errs)
	}
	if _, code, _ := listen(t, "--listen=0", "--token-file="); code != 78 {
		t.Errorf("an empty name: exit %d, want 78", code)
	}
}
