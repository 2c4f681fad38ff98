// Package keep finds the hub that runs on this machine, or else runs one, bound
// to this program, for as long as somebody here uses it.
package keep

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"btools/lib/client"
	"btools/lib/owned"
	"btools/lib/sibling"
	"btools/lib/state"
	"btools/lib/wait"
)

// Keeper keeps a hub. Set its fields before use, and Close it.
type Keeper struct {
	Store  *state.Store
	Stderr io.Writer // gets the messages of a hub that it runs
	Args   []string  // of that hub, besides --extension
	// Linger is how long an own hub runs after its last user, who may be back:
	// with it, all browsers leave.
	Linger time.Duration

	mu     sync.Mutex
	own    *sibling.Browser // nil: there is none
	last   client.Proxy     // that has run, where browsers look for it
	users  int
	timer  wait.Timer
	closed bool
}

const (
	startTimeout = 30 * time.Second
	stopTimeout  = 10 * time.Second
	// settledWithin is how long a hub that listens may take to be listed, and one that
	// was killed to leave its port.
	settledWithin = 2 * time.Second
)

// errClosed means that this program is stopping.
var errClosed = errors.New("the program is stopping")

// Use returns a hub that runs, and starts one if there is none. An own one runs
// on until release was called.
func (k *Keeper) Use(ctx context.Context) (h client.Proxy, release func(), err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return h, nil, errClosed
	}
	if h, err = k.findLocked(ctx); err != nil {
		return h, nil, err
	}
	k.last = h
	k.users++
	return h, sync.OnceFunc(k.release), nil
}

func (k *Keeper) findLocked(ctx context.Context) (client.Proxy, error) {
	h, err := k.running()
	switch {
	case err != nil:
		return client.Proxy{}, err
	case h != nil:
		return *h, nil
	}
	if old := k.own; old != nil { // it has ended, or is not listed any more
		old.Stop()
		k.own = nil
	}
	path, err := sibling.Sibling("bproxy")
	if err != nil {
		return client.Proxy{}, err
	}
	argv := slices.Concat([]string{path, "--extension", "--no-input", "--output=json"}, k.Args, owned.BindArgs())
	if k.last.PairingFile != "" { // else none has run, or it needed no code
		argv = append(argv, fmt.Sprintf("--listen=127.0.0.1:%d", k.last.Port), "--pairing-file="+k.last.PairingFile)
	}
	var own *sibling.Browser
	for end := time.Now().Add(settledWithin); own == nil; {
		own, err = sibling.Launch(ctx, sibling.Spec{Argv: argv, Timeout: startTimeout, Grace: stopTimeout,
			Stderr: k.Stderr, Service: true, Once: true})
		if err == nil {
			break
		}
		if h, _ := k.running(); h != nil { // another program was first
			return *h, nil
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return client.Proxy{}, fmt.Errorf("cannot start bproxy hub: %w", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	k.own = own
	if h, err = k.running(); h == nil && err == nil {
		err = errors.New("bproxy hub is not listed where it was started")
	}
	if err != nil {
		own.Stop()
		k.own = nil
		return client.Proxy{}, err
	}
	return *h, nil
}

// running returns the hub that runs, nil if there is none.
func (k *Keeper) running() (*client.Proxy, error) {
	hubs, err := client.Hubs.All(k.Store)
	for _, h := range hubs {
		c, err := h.Dial(context.Background())
		if err != nil {
			continue // it is about to end
		}
		c.Close()
		return &h, nil
	}
	return nil, err
}

func (k *Keeper) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.users--; k.users > 0 || k.own == nil || k.closed {
		return
	}
	k.timer.Start(k.Linger, k.stopUnused)
}

// stopUnused stops the own hub if nobody uses it.
func (k *Keeper) stopUnused() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.users == 0 && k.own != nil {
		k.own.Stop()
		k.own = nil
	}
}

// Close stops the own hub.
func (k *Keeper) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	k.timer.Stop()
	if k.own != nil {
		k.own.Stop()
		k.own = nil
	}
}
