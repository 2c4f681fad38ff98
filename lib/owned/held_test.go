//go:build unix

package owned

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Each step has its time, and none comes after the end.
func TestEnd(t *testing.T) {
	for _, c := range []struct {
		name  string
		ends  string // the step that ends it
		cut   bool
		took  time.Duration
		taken []string
	}{
		{"ends when asked", "ask", false, 0, []string{"ask"}},
		{"ends when killed", "kill", false, 2 * time.Second, []string{"ask", "ask again", "kill"}},
		{"does not end", "", false, 3 * time.Second, []string{"ask", "ask again", "kill"}},
		{"is not asked for long", "kill", true, time.Second, []string{"ask", "ask again", "kill"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			ended, cut := make(chan struct{}), make(chan struct{})
			if c.cut {
				close(cut)
			}
			var taken []string
			do := func(name string) func() {
				return func() {
					if taken = append(taken, name); name == c.ends {
						close(ended)
					}
				}
			}
			began := time.Now()
			gone := End(ended, Step{Do: do("ask"), Wait: time.Second, Cut: cut},
				Step{Do: do("ask again"), Wait: time.Second}, Step{Do: do("kill"), Wait: time.Second})
			if took := time.Since(began); gone != (c.ends != "") || took != c.took || !slices.Equal(taken, c.taken) {
				t.Errorf("%s: %v after %v and %q", c.name, gone, took, taken)
			}
		})
	}
}

// start starts a script, and returns it with what it prints, once it has printed
// "up".
func start(t *testing.T, script string, asInput bool) (*Process, io.Reader) {
	t.Helper()
	// A pipe of our own: exec's is closed before what is in it is read.
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	cmd := exec.Command("sh", "-c", script)
	cmd.Stdout = in
	p, err := Start(cmd, asInput)
	in.Close()
	if err != nil {
		t.Fatal(err)
	}
	up := make([]byte, 3)
	if _, err := io.ReadFull(out, up); err != nil || string(up) != "up\n" {
		t.Fatalf("%s: %q, %v", script, up, err)
	}
	return p, out
}

// A program sees the end of the pipe when it is released.
func TestRelease(t *testing.T) {
	for _, asInput := range []bool{false, true} {
		script := "echo up; cat <&3; echo over"
		if asInput {
			script = "echo up; cat; echo over"
		}
		p, out := start(t, script, asInput)
		p.Release()
		if rest, err := io.ReadAll(out); string(rest) != "over\n" {
			t.Errorf("%s: printed %q after its release, %v", script, rest, err)
		}
		<-p.Ended
	}
}

// What the program has started is killed with it.
func TestKillIsForTheGroup(t *testing.T) {
	p, _ := start(t, "sleep 60 & trap '' TERM; echo up; wait; sleep 60", false)
	p.Kill()
	<-p.Ended
	for end := time.Now().Add(time.Minute); p.GroupLives(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("its group lives on")
		}
	}
}
