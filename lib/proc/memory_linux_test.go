package proc

import (
	"os"
	"os/exec"
	"testing"
)

func TestMemoryOfATree(t *testing.T) {
	before, err := TreeMemory(os.Getpid())
	if err != nil || before <= 0 {
		t.Fatal(before, err)
	}
	const size = 64 << 20 // bytes that the grandchild holds
	c := exec.Command("sh", "-c", `sh -c 'x=$(head -c 67108864 /dev/zero | tr "\0" x); echo; read y'; true`)
	in, _ := c.StdinPipe()
	out, _ := c.StdoutPipe()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	out.Read(make([]byte, 1))
	after, err := TreeMemory(os.Getpid())
	in.Close()
	c.Wait()
	if err != nil || after-before < size*9/10 {
		t.Errorf("%d MiB before, %d MiB with 64 MiB in a grandchild: %v", before>>20, after>>20, err)
	}
	if n, err := TreeMemory(c.Process.Pid); err != ErrGone {
		t.Errorf("of one that has ended: %d, %v", n, err)
	}
}
