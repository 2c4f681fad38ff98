package live

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A program of another user of the machine, which sends no token, gets nothing; nor does it with our Origin.
func TestOtherUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 || runtime.GOOS != "linux" {
		t.Skip("it runs a program as another user")
	}
	_, base := newFront(t, newStore(t))
	host, port, _ := net.SplitHostPort(strings.TrimPrefix(base, "http://"))
	message := `{"token":"","who":"x"}`
	script := fmt.Sprintf(`exec 3<>/dev/tcp/%[1]s/%[2]s
printf 'GET /list HTTP/1.1\r\nHost: %[1]s:%[2]s\r\nOrigin: %[3]s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' >&3
printf 'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n' >&3
printf '\x81\x%02[5]x\0\0\0\0%[4]s' >&3
cat <&3`, host, port, base, message, 0x80|len(message))
	as := func(uid uint32) string {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, "timeout", "1", "bash", "-c", script)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	if out := as(65534); !strings.Contains(out, "run bproxy view") || strings.Contains(out, "sessions") {
		t.Errorf("another user gets %q", out)
	}
	if out := as(0); !strings.Contains(out, `{"sessions":[]}`) {
		t.Errorf("this user gets %q", out)
	}
}
