package command

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/pool"
	"btools/lib/pool/web"
	"btools/lib/proc"
	"btools/lib/record"
	"btools/lib/state"
	"btools/lib/tokens"
)

// After an upgrade several processes have leases: the service, and those before it, which are retired. Each
// relays requests for leases that are not its own.

// remotely is the method of a relayed request that answers with the leases of a token, or the one that it names.
const remotely control.Method[api.Of, []web.Distant] = "remote"

// holdOn is the method of a relayed request by which leases of a token go on that another process may have.
const holdOn control.Method[pool.Holding, pool.Held] = "hold_on"

// notHere is the code of a relayed request for a lease that the process has not.
const notHere = control.LeaseEnded

// hasLeft reports whether there is a successor, which answers for other processes. While it is being listed, this
// one does.
func (h *handler) hasLeft() bool {
	select {
	case <-h.left:
		return true
	default:
		return false
	}
}

// former returns the retired processes of this service, the oldest first. Those that live are remembered: the state
// file may be lost.
func (h *handler) former() []state.PoolService {
	if h.store == nil || h.hasLeft() {
		return nil
	}
	f, err := h.store.Read()
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		listed := slices.DeleteFunc(f.Pools, func(p state.PoolService) bool {
			return p.Former != h.path || p.Process == proc.Self()
		})
		h.known = append(slices.DeleteFunc(h.known, func(old state.PoolService) bool {
			return slices.ContainsFunc(listed, func(p state.PoolService) bool { return p.Process == old.Process })
		}), listed...)
	}
	h.known = slices.DeleteFunc(h.known, func(p state.PoolService) bool { return !p.Process.Alive() })
	return slices.Clone(h.known)
}

// others returns the processes that may have a lease which this one has not.
func (h *handler) others() []state.PoolService {
	if h.hasLeft() {
		return []state.PoolService{{Control: h.path}} // the successor asks the rest
	}
	return h.former()
}

// serve returns the handler of the control socket.
func (h *handler) serve() control.Handler {
	local := h.local()
	return func(ctx context.Context, method string, params json.RawMessage) (any, error) {
		if method == string(api.Relay) {
			return local(ctx, method, params)
		}
		return h.route(ctx, local, method, params)
	}
}

// route answers a request here or by another process.
func (h *handler) route(ctx context.Context, local control.Handler, method string, params json.RawMessage) (any,
	error) {
	lease, right := leaseOf(params), rights[method]
	var others []state.PoolService
	switch {
	case right == owner && lease != "":
		switch {
		case h.lent.Has(lease):
			return control.Later(func() (any, error) { return control.Finish(local(ctx, method, params)) }), nil
		case !h.service.Has(lease):
			others = h.others()
		}
	case method == string(api.Hold):
	case h.hasLeft() && (right == operator || method == string(api.Status) ||
		method == string(api.Release)):
		others = h.others()
	case method == string(api.Release): // of all
		return h.releaseAll(ctx, local, params)
	}
	if len(others) == 0 {
		return local(ctx, method, params)
	}
	if method == string(api.Attach) {
		for _, p := range others {
			if taken, err := relayAttach(ctx, p.Control, params); !isElsewhere(err) {
				return taken, err
			}
		}
		return local(ctx, method, params)
	}
	return control.Later(func() (any, error) {
		for _, p := range others {
			if got, err := relay(ctx, p.Control, method, params); !isElsewhere(err) {
				return got, err
			}
		}
		return control.Finish(local(ctx, method, params))
	}), nil
}

// releaseAll ends the leases of all processes that the caller may end.
func (h *handler) releaseAll(ctx context.Context, local control.Handler, params json.RawMessage) (any, error) {
	ended, err := local(ctx, string(api.Release), params)
	here, ok := ended.([]released)
	if !ok || err != nil {
		return ended, err
	}
	for _, p := range h.others() {
		there, _ := askOther(ctx, p.Control, control.Method[json.RawMessage, []released](api.Release), params)
		here = append(here, there...)
	}
	return here, nil
}

// status returns the status with the leases of retired processes, as the caller may see it.
func (h *handler) status(ctx context.Context, name string) (*api.PoolsStatus, error) {
	former, of := h.former(), api.Of{Pool: name}
	if h.hasLeft() { // just now: the former ones are the successor's
		st, err := askOther(ctx, h.path, api.Pools, of)
		return &st, err
	}
	st, none := h.here(callerOf(ctx), name)
	for _, p := range former {
		if there, err := askOther(ctx, p.Control, api.Pools, of); err == nil { // else it has ended, or no such pool
			add(st, there.Pools)
			st.Hosts = append(st.Hosts, there.Hosts...)
		}
	}
	if len(st.Pools) == 0 {
		return st, none
	}
	return st, nil
}

// here returns the status of this process with the leases on other hosts, as somebody may see it. Without the pool
// that is named, it is empty.
func (h *handler) here(who *control.Peer, name string) (*api.PoolsStatus, error) {
	st, err := h.service.For(who).Status(name)
	if err != nil {
		st = &api.PoolsStatus{Pools: []api.PoolStatus{}}
	}
	st.Hosts = h.lent.Hosts()
	there := h.lent.Status(who, name)
	for k := range there {
		p, set := &there[k], h.standard.Load()
		p.Affinity, p.LeaseTTL = set.Affinity, set.LeaseTTL.Milliseconds()
		p.Interval, p.Timeout = set.HealthInterval.Milliseconds(), set.HealthTimeout.Milliseconds()
	}
	if add(st, there); len(st.Pools) > 0 {
		err = nil
	}
	return st, err
}

// add adds the leases of other processes, or on other hosts, to a status.
func add(st *api.PoolsStatus, pools []api.PoolStatus) {
	for _, p := range pools {
		if len(p.Instances) == 0 && p.Elsewhere == "" {
			continue
		}
		k := slices.IndexFunc(st.Pools, func(q api.PoolStatus) bool { return q.Name == p.Name })
		if k < 0 {
			p.IsDefault = false
			st.Pools = append(st.Pools, p)
			st.Summary.Pools++
		} else {
			q := &st.Pools[k]
			q.Instances = append(q.Instances, p.Instances...)
			q.Leased += p.Leased
			q.Elsewhere = cmp.Or(q.Elsewhere, p.Elsewhere)
		}
		st.Summary.Leased += p.Leased
	}
	slices.SortStableFunc(st.Pools, func(a, b api.PoolStatus) int { return strings.Compare(a.Name, b.Name) })
}

// relay has another process answer a request of this context's caller.
func relay(ctx context.Context, path, method string, params json.RawMessage) (json.RawMessage, error) {
	for {
		cl, err := control.Dial(ctx, path)
		if err != nil {
			return nil, err
		}
		got, err := api.Relay.Ask(ctx, cl, relayRequest(ctx, method, params))
		cl.Close()
		if !errors.Is(err, control.ErrNotBegun) || !pause(ctx) {
			return got, err
		}
	}
}

// askOther makes a request of this context's caller to another process.
func askOther[P, A any](ctx context.Context, path string, method control.Method[P, A], p P) (answer A, err error) {
	params, err := json.Marshal(p)
	if err != nil {
		return answer, err
	}
	got, err := relay(ctx, path, string(method), params)
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal(got, &answer)
}

// pause waits until a process that ends has, and its path may be another one's. It returns false at the context's end.
func pause(ctx context.Context) bool {
	select {
	case <-time.After(10 * time.Millisecond):
		return true
	case <-ctx.Done():
		return false
	}
}

func relayRequest(ctx context.Context, method string, params json.RawMessage) api.RelayRequest {
	who := callerOf(ctx)
	r := api.RelayRequest{UID: who.UID, PID: who.PID, Method: method, Params: params}
	if who.Token != nil {
		r.Token, r.Admin = who.Token.Name, who.Token.Admin
	}
	return r
}

// isElsewhere reports whether another process is to be asked: the lease is not there, or the process ends.
func isElsewhere(err error) bool {
	var e *control.Error
	if errors.As(err, &e) {
		return e.Code == notHere
	}
	return err != nil
}

// relayAttach joins the connection with one to another process.
func relayAttach(ctx context.Context, path string, params json.RawMessage) (any, error) {
	var answer json.RawMessage
	r := relayRequest(ctx, string(api.Attach), params)
	there, early, err := control.Take(ctx, path, string(api.Relay), r, &answer)
	if err != nil {
		return nil, err
	}
	return control.Taken{Answer: answer, Do: func(ctx context.Context, here net.Conn) {
		defer context.AfterFunc(ctx, func() { there.Close() })()
		go func() {
			io.Copy(there, here)
			there.Close()
		}()
		here.Write(early)
		io.Copy(here, there)
		there.Close()
	}}, nil
}

// relayed answers a request that another process of this service relays. A retired one answers for its own
// leases alone.
func (h *handler) relayed(ctx context.Context, r api.RelayRequest) (any, error) {
	who := &control.Peer{UID: r.UID, PID: r.PID}
	if r.Token != "" {
		who = control.ByToken(&tokens.Token{Name: r.Token, Admin: r.Admin})
	}
	ctx = control.WithPeer(ctx, who)
	lease := leaseOf(r.Params)
	switch {
	case r.Method == string(remotely):
		return control.Later(func() (any, error) { return h.remotes(ctx, who, lease) }), nil
	case r.Method == string(holdOn):
		var p pool.Holding
		if err := json.Unmarshal(r.Params, &p); err != nil {
			return nil, control.Errorf(control.BadRequest, "%v", err)
		}
		others := h.holdElsewhere
		if h.hasLeft() {
			others = nil // the successor asks them
		}
		return control.Later(func() (any, error) { return h.service.For(who).HoldOn(ctx, p, others), nil }), nil
	case r.Method == string(measure):
		return control.Later(func() (any, error) { return h.metrics().measure() }), nil
	case r.Method == string(bequeath):
		var of measured
		if err := json.Unmarshal(r.Params, &of); err != nil {
			return nil, control.Errorf(control.BadRequest, "%v", err)
		}
		return struct{}{}, h.metrics().inherit(of)
	case !h.hasLeft():
		return h.route(ctx, h.local(), r.Method, r.Params)
	case r.Method == string(api.Status):
		var of api.Of
		if err := json.Unmarshal(r.Params, &of); err != nil && r.Params != nil {
			return nil, control.Errorf(control.BadRequest, "%v", err)
		}
		return control.Later(func() (any, error) { return h.here(who, of.Pool) }), nil
	case rights[r.Method] == owner && lease != "" && !h.service.Has(lease) && !h.lent.Has(lease):
		return nil, control.Errorf(notHere, "the lease %s is not here", lease)
	}
	return h.local()(ctx, r.Method, r.Params)
}

// remotes returns a lease, which a retired process may have as well, or all that a token has here.
func (h *handler) remotes(ctx context.Context, who *control.Peer, lease string) (any, error) {
	if h.leases == nil {
		return nil, pool.ErrNoLease(lease)
	}
	if lease != "" {
		at, err := h.leases.RemoteOf(lease)
		if err != nil && !h.hasLeft() {
			if there := h.elsewhere(ctx, lease, ""); len(there) > 0 {
				return there, nil
			}
		}
		return []web.Distant{{Remote: at}}, err
	}
	all := []web.Distant{}
	if who.Token == nil {
		return all, nil
	}
	for _, r := range h.leases.LeasesOf(who) {
		if at, err := h.leases.RemoteOf(record.Member[record.Lease](r, "lease").ID); err == nil {
			all = append(all, web.Distant{Remote: at, Record: r})
		}
	}
	return all, nil
}

// elsewhere returns a lease by HTTP, or all of the caller, that other processes of this service have. With a
// secret it is the lease's.
func (h *handler) elsewhere(ctx context.Context, lease, secret string) (all []web.Distant) {
	for _, p := range h.others() {
		there, err := askOther(ctx, p.Control, remotely, api.Of{Lease: lease})
		if err != nil {
			continue
		}
		all = append(all, slices.DeleteFunc(there, func(d web.Distant) bool {
			want := pool.RemotePrefix + lease + "." + secret
			return secret != "" && subtle.ConstantTimeCompare([]byte(d.Remote.Path), []byte(want)) != 1
		})...)
	}
	return all
}

// holdElsewhere has leases go on that this process does not know, and waits for their news. A lease is gone if no other
// process has it; one that a process may have which lives and does not answer is unheard.
func (h *handler) holdElsewhere(ctx context.Context, p pool.Holding) (held pool.Held) {
	others := h.others()
	gone, unheard := map[string]int{}, map[string]int{} // processes, by lease
	var mu sync.Mutex
	var asked sync.WaitGroup
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.Wait)+holdGrace)
	defer cancel()
	for _, other := range others {
		asked.Go(func() {
			there, err := askOther(ctx, other.Control, holdOn, p)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
			case other.Former != "" && !other.Process.Alive():
				there.Gone = p.Leases
			case !errors.Is(ctx.Err(), context.Canceled): // else it does not matter
				there.Unheard = p.Leases
			}
			for _, id := range there.Gone {
				if _, ended := there.Notices[id]; ended {
					held.Gone = append(held.Gone, id)
				} else {
					gone[id]++
				}
			}
			for _, id := range there.Unheard {
				unheard[id]++
			}
			there.Gone, there.Unheard = nil, nil
			if held.Add(there); held.HasNews() {
				cancel()
			}
		})
	}
	asked.Wait()
	for _, id := range p.Leases {
		switch {
		case gone[id] == len(others):
			held.Gone = append(held.Gone, id)
		case gone[id]+unheard[id] == len(others):
			held.Unheard = append(held.Unheard, id)
		}
	}
	return held
}

// holdGrace is how much longer than the wait another process may take to answer.
const holdGrace = time.Second

// countFormer counts the leases of retired processes among those that their tokens may have at once.
func (h *handler) countFormer(ctx context.Context) {
	if h.leases == nil {
		return
	}
	ctx = control.WithPeer(ctx, &control.Peer{UID: os.Geteuid(), PID: os.Getpid()})
	for _, of := range h.others() {
		there, _ := askOther(ctx, of.Control, api.Pools, api.Of{})
		for _, p := range there.Pools {
			for _, i := range p.Instances {
				if token, is := strings.CutPrefix(i.By, "token:"); is {
					left := h.leases.Count(token)
					go func() {
						defer left()
						awaitEnd(ctx, of.Control, i.Lease)
					}()
				}
			}
		}
	}
}

// awaitEnd waits until a lease of another process has ended.
func awaitEnd(ctx context.Context, path, lease string) {
	for r := (api.WatchRequest{Of: api.Of{Lease: lease}}); ; {
		n, err := askOther(ctx, path, api.Watch, r)
		if err != nil || n.Ended != "" {
			return
		}
		r.After = int64(n.Last)
	}
}

// stopFormer has the retired processes stop, too, and returns what waits for their end.
func (h *handler) stopFormer(now <-chan struct{}) (wait func()) {
	all := h.former()
	for _, p := range all {
		p.Process.Signal(syscall.SIGTERM)
	}
	return func() {
		ctx, ended := context.WithCancel(context.Background())
		go func() {
			select {
			case <-now:
				for _, p := range all {
					p.Process.Signal(syscall.SIGTERM) // the second one: at once
				}
			case <-ctx.Done():
			}
		}()
		defer ended()
		for _, p := range all {
			p.Process.Wait(ctx)
		}
	}
}
