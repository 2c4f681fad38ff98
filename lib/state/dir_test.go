//go:build unix

package state

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"btools/lib/place"
	"btools/lib/proc"
)

// The test's own binary, with this variable, lists a proxy or a pool service
// whose directory holds a file, and waits.
const holder = "BTOOLS_TEST_HOLDER"

func holdDir(kind string) {
	d := NewDir()
	entry := func(f *File) error {
		switch kind {
		case "proxy":
			f.Set(Proxy{Process: proc.Self(), Control: d.Path() + place.SocketSuffix, Dir: d.Path()})
		case "pools":
			f.Set(PoolService{Process: proc.Self(), Control: d.Path() + place.SocketSuffix, Dir: d.Path()})
		}
		return nil
	}
	err := Open(os.Getenv).Update(context.Background(), entry)
	path := ""
	if err == nil {
		path, err = d.Make(context.Background())
	}
	if err == nil {
		os.MkdirAll(path+"/session", 0o700)
		err = os.WriteFile(path+"/session/file", []byte("x"), 0o600)
	}
	if err != nil {
		panic(err)
	}
	os.Stdout.WriteString(path + "\n")
	select {}
}

// The directory of a program that is killed is deleted by the next program that
// takes the lock; that of a program that lives, or removes it, is not.
func TestDirOfAProgram(t *testing.T) {
	t.Setenv("BTOOLS_STATE", t.TempDir()+"/state/state.json")
	t.Setenv("TMPDIR", t.TempDir())
	s := Open(os.Getenv)
	sweep := func() {
		t.Helper()
		if err := s.Update(t.Context(), func(*File) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	exists := func(dir string) bool {
		_, err := os.Stat(dir)
		return err == nil
	}
	start := func(kind string) (dir string, kill func()) {
		t.Helper()
		c := exec.Command(os.Args[0])
		c.Env = append(c.Environ(), holder+"="+kind)
		out, _ := c.StdoutPipe()
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		kill = func() { c.Process.Kill(); c.Wait() }
		t.Cleanup(kill)
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal("it has ended", err)
		}
		return line[:len(line)-1], kill
	}
	for _, kind := range []string{"proxy", "pools"} {
		dir, kill := start(kind)
		if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
			t.Fatal(st, err)
		}
		sweep()
		if !exists(dir + "/session/file") {
			t.Fatalf("%s: the directory of a program that lives is gone", kind)
		}
		kill()
		sweep()
		f, err := s.Read()
		if exists(dir) || err != nil || len(f.Instances)+len(f.Proxies)+len(f.Pools) > 0 {
			t.Errorf("%s: left after the sweep: %v, %+v, %v", kind, exists(dir), f, err)
		}
	}
	// One that no entry names, because the state file was lost.
	dir, kill := start("unlisted")
	old := time.Now().Add(-2 * newBound)
	os.Chtimes(dir, old, old)
	if _, err := s.GC(t.Context()); err != nil || !exists(dir) {
		t.Error("GC has deleted the directory of a program that lives", err)
	}
	kill()
	if _, err := s.GC(t.Context()); err != nil || exists(dir) {
		t.Error("GC leaves the directory of a dead program", err)
	}
	// One that is deleted by somebody else, and by the program.
	d := NewDir()
	for range 2 {
		if _, err := d.Make(t.Context()); err != nil || !exists(d.Path()) {
			t.Fatal(err)
		}
		os.Remove(d.Path())
	}
	d.Make(t.Context())
	os.WriteFile(filepath.Join(d.Path(), "file"), nil, 0o600)
	if err := d.Remove(); err != nil || exists(d.Path()) {
		t.Error("Remove leaves it", err)
	}
}
