package command

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"btools/lib/cli"
	"btools/lib/control"
	"btools/lib/proc"
	"btools/lib/record"
	"btools/lib/register"
	"btools/lib/run"
	runcommand "btools/lib/run/command"
	"btools/lib/state"
)

// listed is a proxy or a hub as other programs of this machine find it: by an entry in the state file with its record,
// and by a control socket.
type listed struct {
	record *record.Record // without what changes
	at     record.Proxy   // its member "proxy"
	dir    *state.Dir     // for the files of sessions
}

// list returns a program that listens on an address. Its record is rec, which may be nil, with the proxy e.
func list(c *cli.Context, rec *record.Record, dir *state.Dir, addr net.Addr, e record.Proxy) *listed {
	if rec == nil {
		rec = record.New()
	}
	a := addr.(*net.TCPAddr)
	e.PID, e.Host, e.Port, e.Owner = os.Getpid(), a.IP.String(), a.Port, c.String("owner")
	reach := e.Host
	if a.IP.IsUnspecified() {
		reach = "127.0.0.1"
	}
	e.HTTPURL = "http://" + net.JoinHostPort(reach, strconv.Itoa(a.Port))
	setProtocol(&e, e.Protocol)
	l := &listed{record: rec.Clone(), at: e, dir: dir}
	l.record.MustSet("proxy", e)
	return l
}

// setProtocol sets a proxy's protocol and the matching address.
func setProtocol(e *record.Proxy, protocol string) {
	e.Protocol, e.WSURL = protocol, browserAt(e.HTTPURL)
	if protocol == record.BiDi {
		e.WSURL = webSocket(e.HTTPURL) + "/session"
	}
}

// webSocket returns an address with the scheme of WebSockets.
func webSocket(url string) string { return strings.Replace(url, "http", "ws", 1) }

// browserAt returns the WebSocket of the browser whose /json requests are answered at an address.
func browserAt(url string) string { return webSocket(url) + "/devtools/browser" }

// run lists the program, calls begin with a function that restores the entry, and serves as runcommand.CMD does.
func (l *listed) run(ctx context.Context, stop context.CancelCauseFunc, c *cli.Context, cmd *runcommand.CMD,
	begin func(restore func()), m *control.Mux, serve func(context.Context) error,
	launch func() (run.Endpoint, error)) error {
	store := c.State()
	path, err := store.Socket(fmt.Sprintf("bproxy-%d-%d", l.at.Port, l.at.PID))
	if err != nil {
		return state.Explain(err)
	}
	entry := state.Proxy{Process: proc.Self(), Control: path, Record: l.record, Dir: l.dir.Path()}
	reg := &register.Service{Store: store, Path: path, Log: c.Log, Entry: func() state.Service { return entry }}
	begin(reg.Restore)
	if err := reg.Open(ctx); err != nil {
		return err
	}
	defer func() {
		for _, err := range []error{l.dir.Remove(), reg.Close()} { // in this order: the entry names the directory
			if err != nil {
				c.Log.Warn(err.Error())
			}
		}
	}()
	reg.Serve(m.Serve)
	return cmd.Serve(ctx, stop, serve, l.record, launch)
}
