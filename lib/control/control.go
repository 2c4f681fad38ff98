// Package control is the control protocol: one JSON object a line each way
// on a Unix socket. A request is {"id":1,"method":"status","params":{…}}, its
// answer {"id":1,"result":{…}} or {"id":1,"error":{"code":"…","message":"…"}}.
// Answers may come out of order; a connection that drops cancels what it
// waits for. The method ping has no effect, and is answered as soon as it is read.
package control

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"btools/lib/exit"
	"btools/lib/private"
)

// MaxLine is the size in bytes of the longest request or answer.
const MaxLine = 1 << 20

// maxPending bounds the requests of one connection that wait.
const maxPending = 64

// Codes of errors, a closed list that btools(7) documents.
const (
	BadRequest    = "bad_request"    // the line or the parameters make no sense
	UnknownMethod = "unknown_method" // this program has no such method
	NotOwned      = "not_owned"      // the browser is somebody else's to launch and stop
	NotAllowed    = "not_allowed"    // for this user
	Unavailable   = "unavailable"    // no such browser, no display
	TryAgain      = "try_again"      // timed out, profile in use, shutting down
	Stopping      = "stopping"       // about to end, with nothing done: another one may be started
	Failed        = "failed"         // anything else

	PoolNotFound     = "pool_not_found"
	InstanceNotFound = "instance_not_found"
	LeaseNotFound    = "lease_not_found"
	LeaseEnded       = "lease_ended"          // which an address belongs to
	NoneHealthy      = "no_healthy_instances" // what could be leased has failed
	LeaseTimeout     = "lease_timeout"        // none came free in time
	QueueFull        = "queue_full"           // no more requests may wait
	OfferLapsed      = "offer_lapsed"         // it was not leased in time
	NoNATS           = "nats_unavailable"     // no server answers, which requests for other hosts need
	BadConfig        = "bad_config"           // the configuration is not valid

	SessionNotFound = "session_not_found"
	SessionLimit    = "session_limit"  // as many are there as may
	SessionExists   = "session_exists" // and cannot be created with other properties

	BadData     = "bad_data"     // a state is damaged, or what is imported is not one
	StateExists = "state_exists" // and is not to be replaced
)

// exits maps the codes to exit codes.
var exits = map[string]int{
	BadRequest: exit.Usage, UnknownMethod: exit.Usage, NotOwned: exit.Usage,
	NotAllowed: exit.Unavailable, Unavailable: exit.Unavailable,
	TryAgain: exit.TryAgain, Stopping: exit.TryAgain, Failed: exit.Failed,
	PoolNotFound: exit.Unavailable, InstanceNotFound: exit.Unavailable, LeaseNotFound: exit.Unavailable,
	LeaseEnded:  exit.Unavailable,
	NoneHealthy: exit.Unavailable, LeaseTimeout: exit.TryAgain, QueueFull: exit.TryAgain, OfferLapsed: exit.TryAgain,
	NoNATS: exit.TryAgain, BadConfig: exit.Config,
	SessionNotFound: exit.Unavailable, SessionLimit: exit.TryAgain,
	SessionExists: exit.Usage, BadData: exit.Data, StateExists: exit.Usage,
}

// Error is an error as it travels.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // what to do
}

func (e *Error) Error() string { return e.Message }

// Errorf makes an Error.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// ErrorOf is the Error that an error travels as: itself, or one with the
// code that fits its exit code.
func ErrorOf(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	code, hint := Failed, ""
	var c *exit.Error
	if errors.As(err, &c) {
		hint = c.Hint
		switch c.Code {
		case exit.Usage:
			code = BadRequest
		case exit.Data:
			code = BadData
		case exit.Unavailable, exit.NotFound, exit.CannotRun:
			code = Unavailable
		case exit.TryAgain:
			code = TryAgain
		case exit.Config:
			code = BadConfig
		}
	}
	return &Error{Code: code, Message: err.Error(), Hint: hint}
}

// As sets the target to the error with its exit code, if it is an *exit.Error.
func (e *Error) As(target any) bool {
	to, ok := target.(**exit.Error)
	if ok {
		*to = &exit.Error{Code: cmp.Or(exits[e.Code], exit.Failed), Err: e, Hint: e.Hint}
	}
	return ok
}

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params,omitempty"`
}

type answer struct {
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Error          `json:"error,omitempty"`
}

// line is the answer as a line; its parts are checked already.
func (a answer) line() []byte {
	id := a.ID
	if id == nil {
		id = json.RawMessage("null")
	}
	name, value := `,"result":`, a.Result
	if a.Error != nil {
		name = `,"error":`
		value, _ = json.Marshal(a.Error) // strings always marshal
	}
	return slices.Concat([]byte(`{"id":`), id, []byte(name), value, []byte("}\n"))
}

// Handler answers one request. The context ends with the connection, whose
// next request is read when it returns: what has to wait for something it
// returns as a Later or a Begun. Requests of one connection come in their
// order, so that a handler that begins before it waits is fair.
type Handler func(ctx context.Context, method string, params json.RawMessage) (any, error)

// Later is a result that comes when the function returns.
type Later func() (any, error)

// Begun is a Later for a request that has its place in a line already. Cancel
// is called in its stead if too many wait on the connection.
type Begun struct {
	Later
	Cancel func()
}

// Finish waits for a result that comes later, and returns it.
func Finish(result any, err error) (any, error) {
	switch later := result.(type) {
	case Later:
		return later()
	case Begun:
		return later.Later()
	}
	return result, err
}

// Taken is an answer after which the connection is another one: Do has it, and it closes when that returns. The client
// sends nothing before it has the answer. Requests of this connection that wait are canceled.
type Taken struct {
	Answer any
	Do     func(ctx context.Context, c net.Conn)
}

// Listen opens a control socket, mode 0600, in a directory that is nobody
// else's. What a dead process left at the path is replaced. Another process
// that opens or closes it now is waited for, until the context ends or 10 s
// have passed.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	if len(path) > maxPath {
		return nil, exit.Errorf(exit.Usage, "the path of the control socket has %d bytes, %d at most: %s",
			len(path), maxPath, path)
	}
	// Of two that come at once, one is second.
	unlock, err := private.LockSocket(ctx, path, true)
	if errors.Is(err, private.ErrLocked) {
		return nil, &exit.Error{Code: exit.TryAgain, Err: fmt.Errorf("cannot open the control socket: %w", err)}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the control socket: %w", err)
	}
	defer unlock()
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
	}
	st, statErr := os.Lstat(path)
	switch {
	case err == nil, errors.Is(err, syscall.EAGAIN): // it has more to do than it can take
		return nil, exit.Errorf(exit.TryAgain, "somebody listens on %s already", path)
	case statErr == nil && (st.Mode().Type() != fs.ModeSocket || !errors.Is(err, syscall.ECONNREFUSED)):
		return nil, exit.Errorf(exit.Config,
			"cannot open the control socket: %s exists and is not a stale socket", path)
	case statErr == nil:
		os.Remove(path)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("cannot open the control socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	st, err = os.Lstat(path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return &listener{UnixListener: l, path: path, made: st}, nil
}

// Adopt returns the listener of a socket that another process of this service has opened, whose path is this
// one's now.
func Adopt(l *net.UnixListener) net.Listener {
	path := l.Addr().String()
	made, _ := os.Lstat(path)
	return &listener{UnixListener: l, path: path, made: made}
}

// Leave closes a listener whose path another process of this service has adopted.
func Leave(l net.Listener) {
	if l, ok := l.(*listener); ok {
		l.UnixListener.Close()
		return
	}
	l.Close()
}

// closeBound is how long Close waits for another process that opens the
// socket's path just now.
const closeBound = time.Second

// maxPath is the length in bytes of the longest path that a socket can have
// everywhere: macOS has 104 with the NUL.
const maxPath = 103

// listener takes its path away with it, unless that is another one's by then.
type listener struct {
	*net.UnixListener
	path string
	made fs.FileInfo
	once sync.Once
}

func (l *listener) Close() error {
	err := l.UnixListener.Close()
	l.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeBound)
		defer cancel()
		unlock, err := private.LockSocket(ctx, l.path, true)
		if err != nil {
			return // whoever finds the socket dead removes it
		}
		defer unlock()
		if st, err := os.Lstat(l.path); err == nil && os.SameFile(st, l.made) {
			os.Remove(l.path)
		}
	})
	return err
}

// Serve answers the requests of all connections until the listener is
// closed and the context has ended; it returns when nobody is being answered.
func Serve(ctx context.Context, l net.Listener, handle Handler) {
	var wg sync.WaitGroup
	defer wg.Wait()
	pause := time.Duration(0)
	for {
		c, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
				return
			}
			pause = min(max(2*pause, 5*time.Millisecond), time.Second) // too many files are open, say
			time.Sleep(pause)
			continue
		}
		pause = 0
		wg.Go(func() { serve(ctx, c, handle) })
		// Of goroutines that are started in a row the last one runs first: this
		// lets each read its first request before the next connection's.
		runtime.Gosched()
	}
}

// lastAnswers is how long a client may take to read its answers at the end.
const lastAnswers = time.Second

func serve(ctx context.Context, c net.Conn, handle Handler) {
	defer c.Close()
	peer, err := peerOf(c)
	if err != nil {
		return // it has ended already
	}
	ctx, cancel := context.WithCancel(WithPeer(ctx, peer))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	// What has been done is answered still, to a client that reads.
	defer context.AfterFunc(ctx, func() {
		c.SetReadDeadline(time.Unix(1, 0))
		c.SetWriteDeadline(time.Now().Add(lastAnswers))
	})()
	var mu sync.Mutex
	write := func(a answer) {
		line := a.line()
		mu.Lock()
		defer mu.Unlock()
		c.Write(line)
	}
	type waiting struct {
		id    json.RawMessage
		later Later
	}
	next := make(chan waiting)
	var unanswered atomic.Int32
	workers := 0
	lines := bufio.NewScanner(c)
	lines.Buffer(nil, MaxLine)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			write(answer{Error: Errorf(BadRequest, "not a request: %v", err)})
			continue
		}
		if r.Method == ping {
			write(answered(r.ID, nil, nil))
			continue
		}
		result, err := handle(ctx, r.Method, r.Params)
		if taken, ok := result.(Taken); ok {
			write(answered(r.ID, taken.Answer, nil))
			taken.Do(ctx, c)
			break
		}
		cancel := func() {}
		var later Later
		switch result := result.(type) {
		case Later:
			later = result
		case Begun:
			later, cancel = result.Later, result.Cancel
		default:
			write(answered(r.ID, result, err))
			continue
		}
		if unanswered.Add(1) > maxPending {
			unanswered.Add(-1)
			cancel()
			write(answer{ID: r.ID, Error: Errorf(TryAgain, "%d requests of this connection wait already", maxPending)})
			continue
		}
		w := waiting{r.ID, later}
		// One that has just answered takes the next, its stack grown already.
		select {
		case next <- w:
			continue
		default:
		}
		if workers == maxPending { // one of them is writing an answer
			next <- w
			continue
		}
		workers++
		wg.Go(func() {
			for ok := true; ok; w, ok = <-next {
				result, err := w.later()
				unanswered.Add(-1)
				if err == nil || ctx.Err() == nil { // else the end of the connection says it
					write(answered(w.id, result, err))
				}
			}
		})
	}
	close(next)
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		write(answer{Error: Errorf(BadRequest, "a request is longer than %d bytes", MaxLine)})
	}
}

func answered(id json.RawMessage, result any, err error) answer {
	a := answer{ID: id}
	if err == nil {
		a.Result, err = json.Marshal(result)
	}
	if err != nil {
		a.Error, a.Result = ErrorOf(err), nil
	}
	return a
}
