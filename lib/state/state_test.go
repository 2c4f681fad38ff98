//go:build unix

package state

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"btools/lib/private"
	"btools/lib/record"
)

// The test's own binary, with this variable, is one of many writers.
const writer = "BTOOLS_TEST_WRITER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(holder); kind != "" {
		holdDir(kind)
	}
	if n, err := strconv.Atoi(os.Getenv(writer)); err == nil {
		s := Open(os.Getenv)
		for i := range 25 {
			p := Port{Port: n*100 + i, Until: record.Time{Time: time.Now().Add(time.Hour)}}
			err := private.ErrLocked
			for errors.Is(err, private.ErrLocked) { // by one of the others, which ask for it all the time
				err = s.Update(context.Background(), func(f *File) error {
					f.Ports = append(f.Ports, p)
					return nil
				})
			}
			if err != nil {
				panic(err)
			}
			fmt.Println(p.Port) // it counts as written
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Many write, every fourth is killed, one reads: what a writer said is written
// stays, and every read sees a whole file.
func TestManyWriters(t *testing.T) {
	t.Setenv("BTOOLS_STATE", t.TempDir()+"/state/state.json")
	s := Open(os.Getenv)
	stop := make(chan struct{})
	read := make(chan error)
	go func() {
		defer close(read)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if f, err := s.load(); err != nil || f.V != Version {
				read <- fmt.Errorf("read %+v, %v", f, err)
				return
			}
		}
	}()
	var cmds []*exec.Cmd
	var outs []*os.File
	for n := range 16 {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), writer+"="+strconv.Itoa(n))
		out, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		c.Stdout, c.Stderr = out, os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		cmds, outs = append(cmds, c), append(outs, out)
	}
	for n, c := range cmds {
		if n%4 == 0 {
			c.Process.Kill()
		}
		c.Wait()
	}
	close(stop)
	if err := <-read; err != nil {
		t.Error(err)
	}
	f, err := s.Read()
	if err != nil {
		t.Fatal(err)
	}
	there := map[int]bool{}
	for _, p := range f.Ports {
		there[p.Port] = true
	}
	for n, out := range outs {
		b, _ := os.ReadFile(out.Name())
		said := 0
		for rest := string(b); ; said++ {
			var p int
			if k, _ := fmt.Sscanf(rest, "%d\n", &p); k == 0 {
				break
			}
			rest = rest[len(strconv.Itoa(p))+1:]
			if !there[p] {
				t.Errorf("what writer %d wrote as %d is lost", n, p)
			}
		}
		if n%4 != 0 && said != 25 {
			t.Errorf("writer %d wrote %d of 25", n, said)
		}
	}
}

func TestUnknownMembersStay(t *testing.T) {
	t.Setenv("BTOOLS_STATE", t.TempDir()+"/state/state.json")
	s := Open(os.Getenv)
	if err := s.Update(context.Background(), func(*File) error { return nil }); err != nil {
		t.Fatal(err)
	}
	const newer = `{"v":1,"gadgets":[{"name":"P"}],"instances":[],"proxies":[],"pools":[],"ports":[],"exits":[]}`
	os.WriteFile(s.Path(), []byte(newer), 0o600)
	if err := s.Update(context.Background(), func(*File) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(s.Path()); string(b) != newer+"\n" {
		t.Errorf("%s", b)
	}
}

func TestRemoveDirRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"/", "/etc", dir, "btools-inst_1_aaaaaa", dir + "/btools-inst_1_aaaaaa/..",
		dir + "/btools-x"} {
		if _, err := RemoveDir(d); err == nil {
			t.Errorf("%s is not refused", d)
		}
	}
}
