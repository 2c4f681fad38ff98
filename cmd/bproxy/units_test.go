//go:build linux

package main_test

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// The system's unit serves as a user who has no home.
func TestSystemUnit(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	home, as := w.OtherUser("bproxy", "blaunch", "fakebrowser")
	unit := cmdtest.Unit(t, "bproxy.service", "bproxy.service.d/system.conf")
	command, ok := strings.CutPrefix(unit["ExecStart"], "/usr/local/bin/")
	if !ok {
		t.Fatalf("it starts %s", unit["ExecStart"])
	}
	run := home + "/run/" + unit["RuntimeDirectory"]
	if err := errors.Join(os.MkdirAll(run, 0o755), os.Chown(run, int(as.Credential.Uid), -1)); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, _ := l.(*net.TCPListener).File()
	defer f.Close()
	p := &cmdtest.Proxy{T: t, W: w, Cmd: w.Cmd("sh", "-c", "export LISTEN_PID=$$ LISTEN_FDS=1; exec "+w.Dir+"/bin/"+
		command+" --browser "+w.Dir+"/bin/fakebrowser")}
	p.Cmd.Env = append(strings.Fields(strings.NewReplacer("%t", home+"/run", "%C/"+unit["CacheDirectory"], home).
		Replace(unit["Environment"])), "PATH="+os.Getenv("PATH"))
	p.Cmd.ExtraFiles, p.Cmd.SysProcAttr, p.Cmd.Dir = []*os.File{f}, as, "/"
	p.Start()
	if code, body := cmdtest.Get(t, "GET", p.URL+"/json/version"); code != 200 {
		t.Errorf("%d %s", code, body)
	}
	p.Stop()
	w.Clean()
}
