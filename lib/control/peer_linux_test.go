package control

import (
	"context"
	"encoding/json"
	"os"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// A handler knows the user at the other end, and one connection from another.
func TestPeer(t *testing.T) {
	var mu sync.Mutex
	peers := map[*Peer]int{}
	path := serveFor(t, func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		peers[PeerOf(ctx)]++
		if pid := PeerOf(ctx).PID; pid != os.Getpid() {
			t.Errorf("the peer is process %d, want %d", pid, os.Getpid())
		}
		return PeerOf(ctx).UID, nil
	})
	ask := func(want int) {
		c, err := Dial(t.Context(), path)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		for range 2 {
			uid := -2
			if err := c.Call(t.Context(), "uid", nil, &uid); err != nil || uid != want {
				t.Errorf("the user is %d, %v, want %d", uid, err, want)
			}
		}
	}
	users := []int{os.Geteuid()}
	if users[0] == 0 {
		users = append(users, 65534)
	}
	for _, uid := range users {
		done := make(chan struct{})
		go func() {
			defer close(done)
			// The thread, which ends with the goroutine, becomes that of another user who
			// may still open the socket.
			runtime.LockOSThread()
			const unchanged = ^uintptr(0)
			if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, unchanged, uintptr(uid), unchanged); e != 0 {
				t.Error(e)
				return
			}
			unix.RawSyscall(unix.SYS_SETFSUID, uintptr(users[0]), 0, 0)
			ask(uid)
		}()
		<-done
	}
	mu.Lock()
	defer mu.Unlock()
	if len(peers) != len(users) {
		t.Errorf("%d connections have %d peers", len(users), len(peers))
	}
}
