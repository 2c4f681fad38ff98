package live

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"hash/fnv"
	"html"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"btools/lib/background"
	"btools/lib/control"
	"btools/lib/private"
	"btools/lib/proc"
	"btools/lib/register"
	"btools/lib/state"
)

// Socket is the name of the control socket of the service.
const Socket = "view"

// The methods of the service.
const (
	// Open answers with an address of the page, or with the path of a file that leads there.
	Open control.Method[OpenRequest, string] = "open"
	// Stop ends the service, all tokens and connections, and then answers.
	Stop control.Method[struct{}, struct{}] = "stop"
)

// OpenRequest is the parameters of open.
type OpenRequest struct {
	Session string `json:"session,omitempty"` // its key or name; "": the page of all
	Control bool   `json:"control,omitempty"` // the address may take control
	// Browse says that the address is for the browser of this user, and an argument of its command: it has no token.
	Browse  bool   `json:"browse,omitempty"`
	Release string `json:"release"` // of the program that asks
}

// Address asks the service for an address, and starts it by bproxy, the program at a path, if none runs. The arguments
// are flags for it.
func Address(ctx context.Context, store *state.Store, bproxy string, env, args []string, r OpenRequest) (
	address string, err error,
) {
	command := func() (*exec.Cmd, error) {
		cmd, err := background.Command("bproxy", append([]string{"view-service"}, args...)...)
		if err == nil {
			cmd.Path, cmd.Dir = cmp.Or(bproxy, cmd.Path), filepath.Dir(store.Path())
			cmd.Env = append(env, "BTOOLS_STATE="+store.Path())
		}
		return cmd, err
	}
	for end := time.Now().Add(background.Patience); ; {
		conn, err := background.Connect(ctx, store.SocketPath(Socket), "bproxy view", command)
		if err != nil {
			return "", err
		}
		at, err := Open.Ask(ctx, conn, r)
		conn.Close()
		var e *control.Error
		isOver := errors.As(err, &e) && e.Code == control.Stopping || errors.Is(err, control.ErrNotBegun)
		if !isOver || time.Now().After(end) {
			return at, err
		}
		time.Sleep(10 * time.Millisecond) // it leaves its socket at once
	}
}

// Service is the service behind bproxy view.
type Service struct {
	Store   *state.Store
	Release string
	Log     *slog.Logger

	front Front
	base  string          // of addresses
	ctx   context.Context // ends when the service is to end
	stop  context.CancelFunc
	ended chan struct{} // closed when no page is left
}

// Run runs the service until the context ends, it is stopped or no page has been open for Idle. It calls ready when it
// can be called.
func (s *Service) Run(ctx context.Context, ready func()) error {
	s.ctx, s.stop = context.WithCancel(ctx)
	defer s.stop()
	path, err := s.Store.Socket(Socket)
	if err != nil {
		return state.Explain(err)
	}
	entry := state.ViewService{Process: proc.Self(), Control: path}
	reg := &register.Service{Store: s.Store, Path: path, Shared: true, Log: s.Log, Linger: time.Second,
		Entry: func() state.Service { return entry }}
	if err := reg.Open(ctx); err != nil {
		return err
	}
	l, err := listen(s.Store.Path())
	if err != nil {
		reg.Close()
		return err
	}
	s.base = "http://" + l.Addr().String()
	s.front = Front{Store: s.Store, Log: s.Log, Unused: s.stop}
	s.ended = make(chan struct{})
	var failed error
	go func() {
		defer close(s.ended)
		defer s.stop()
		failed = s.front.Serve(s.ctx, l)
	}()
	m := &control.Mux{Program: "bproxy view"}
	control.Handle(m, Open, s.open)
	control.Handle(m, Stop, func(context.Context, struct{}) (any, error) {
		s.stop()
		return control.Later(func() (any, error) {
			<-s.ended
			return struct{}{}, nil
		}), nil
	})
	reg.Serve(m.Serve)
	ready()
	<-s.ended
	err = reg.Close()
	left, _ := filepath.Glob(s.leading("*"))
	for _, name := range left {
		os.Remove(name)
	}
	return cmp.Or(failed, err)
}

// listen opens the port that the page of a state file has at each start, or another one if that is taken: a link in a
// chat is good for longer than a service.
func listen(state string) (net.Listener, error) {
	const first, ports = 17000, 3000
	h := fnv.New32a()
	h.Write([]byte(state))
	for _, port := range []int{first + int(h.Sum32()%ports), 0} {
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil || port == 0 {
			return l, err
		}
	}
	panic("unreachable")
}

// open answers a request for an address.
func (s *Service) open(ctx context.Context, r OpenRequest) (any, error) {
	if r.Release != s.Release && s.front.isUnused() {
		s.stop()
	}
	if s.ctx.Err() != nil {
		return nil, control.Errorf(control.Stopping, "the service of bproxy view is stopping")
	}
	return control.Later(func() (any, error) {
		key := ""
		if r.Session != "" {
			found, err := s.front.find(ctx, r.Session, time.Now()) // pages see what it is asked for
			if err != nil {
				return nil, err
			}
			key = found.Key
		}
		switch {
		case !r.Browse:
			return s.base + s.front.Fragment(key, r.Control), nil
		case runtime.GOOS != "linux":
			return s.lead(s.base + s.front.Fragment(key, true))
		case key == "": // the system tells whose browser it is
			return s.base + "/", nil
		}
		return s.base + "/#/" + url.PathEscape(key), nil
	}), nil
}

// lead writes a file that leads a browser of this user to an address, and returns its path. All can read the arguments
// of a browser's command.
func (s *Service) lead(address string) (path string, err error) {
	path = s.leading(rand.Text())
	err = private.WriteFile(path, []byte(`<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" `+
		`content="0; url=`+html.EscapeString(address)+`">`))
	time.AfterFunc(firstUse, func() { os.Remove(path) })
	return path, err
}

// leading returns the path of such a file.
func (s *Service) leading(name string) string {
	return filepath.Join(filepath.Dir(s.Store.Path()), "view-"+name+".html")
}
