package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/logins"
	"btools/lib/pool"
	"btools/lib/pool/config"
	"btools/lib/pool/gateway"
	"btools/lib/record"
	"btools/lib/tokens"
)

// A service that leases from other hosts treats those leases as it treats its own.

// leases is what has a lease: the pools of this process, or what it has leased from other hosts.
type leases interface {
	Release(id string) bool
	Confirm(id string) error
	Renew(id string, ttl time.Duration) (*record.Record, error)
	Rest(id string) error
	LeaseState(ctx context.Context, id string) (*logins.State, []string, error)
	Attach(ctx context.Context, r api.AttachRequest) (any, error)
}

// of returns what has a lease.
func (h *handler) of(lease string) leases {
	if h.lent.Has(lease) {
		return h.lent
	}
	return h.service
}

// mayUse reports whether somebody may use or end a lease.
func (h *handler) mayUse(who *control.Peer, lease string) bool {
	if h.lent.Has(lease) {
		return h.lent.MayUse(who, lease)
	}
	return h.service.For(who).MayUse(lease)
}

// releaseOwn ends the leases of this process that somebody may end, and returns their IDs.
func (h *handler) releaseOwn(who *control.Peer) []string {
	return slices.Concat(h.service.ReleaseAll(who), h.lent.ReleaseAll(who))
}

// notices answers watch of a lease.
func (h *handler) notices(ctx context.Context, p api.WatchRequest) (api.Notices, error) {
	if n, is, err := h.lent.Notices(ctx, p.Lease, int(p.After)); is {
		return n, err
	}
	return h.service.Notices(ctx, p.Lease, int(p.After))
}

// held returns the number of leases of this process.
func (h *handler) held() int { return h.service.Leases() + h.lent.Len() }

// holders reports the number of leases of this process and who holds them.
func (h *handler) holders() string {
	st, _ := h.here(&control.Peer{UID: os.Geteuid()}, "")
	return pool.Holders(st, time.Now())
}

// leaseAnywhere leases an instance for a user of this machine, of this host or of another one. Keep is the user's name
// for what the lease leaves to the next one; region is the only one of the host, or "".
func (h *handler) leaseAnywhere(ctx context.Context, r pool.Request, keep, region string) (any, error) {
	there := gateway.LoanRequest{By: r.By, TTL: r.TTL,
		Binding: pool.Binding{Bound: r.Held, Confirm: r.Confirm, Owner: r.Owner},
		Request: gateway.Request{Pool: cmp.Or(r.Pool, config.Default), Region: region,
			Timeout: h.standard.Load().LeaseTimeout}}
	there.User, there.Holder = h.service.Holder(r.By, r.Holder)
	if r.TTL == 0 && !r.Held {
		there.TTL = h.standard.Load().LeaseTTL
	}
	if name, most, err := h.service.Standard(r.Pool); err == nil {
		there.Pool, there.Timeout = name, most
	}
	if r.Timeout != nil {
		there.Timeout = *r.Timeout
	}
	if keep != "" {
		there.Keep = fmt.Sprintf("%v %s %s", r.By, r.State, keep)
	}
	if r.State != "" {
		state, err := r.States.Load(r.State)
		if err != nil {
			return nil, err
		}
		there.State = state.Export()
	} else if r.Inline != nil {
		there.State = r.Inline.Export()
	}
	if !h.lent.Keeps(there) {
		return h.leaseFirst(ctx, r, there)
	}
	return control.Later(func() (any, error) {
		if rec, is := h.lent.Again(ctx, there); is {
			return rec, nil
		}
		return control.Finish(h.leaseFirst(ctx, r, there))
	}), nil
}

// admit returns how long a token's request for a lease of a pool waits by default, or why it may not lease there.
func (h *handler) admit(t *tokens.Token, name string) (time.Duration, error) {
	most, err := h.service.For(control.ByToken(t)).Admit(name)
	if err == nil || h.lent == nil || control.ErrorOf(err).Code != control.PoolNotFound {
		return most, err
	}
	if name = cmp.Or(name, config.Default); t.Pools != nil && !t.Admin && !slices.Contains(t.Pools, name) {
		return 0, control.Errorf(control.NotAllowed, "the token %s may not lease from the pool %s", t.Name, name)
	}
	return h.standard.Load().LeaseTimeout, nil
}

// leaseFirst leases an own instance or, if none is free, the first that becomes free here or on another host.
func (h *handler) leaseFirst(ctx context.Context, r pool.Request, there gateway.LoanRequest) (any, error) {
	began := time.Now()
	var w *pool.Waiting
	_, _, none := h.service.Standard(r.Pool)
	if near := there.Region == "" || there.Region == h.standard.Load().Hosts.Region; near && none == nil {
		var g *pool.Grant
		if g, w, none = h.service.Lease(ctx, r); g != nil || none != nil && !mayBeElsewhere(none) {
			h.lent.Forget(there)
			return h.leaseAnswer(ctx, g, none)
		}
	} else {
		none = nil
	}
	cancel := func() {}
	if w != nil {
		cancel = w.Cancel
	}
	return control.Begun{Cancel: cancel, Later: func() (any, error) {
		here, leave := context.WithCancelCause(ctx)
		defer leave(nil)
		away, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		var rec *record.Record
		var failed error
		var asking sync.WaitGroup
		asking.Go(func() {
			if rec, failed = h.lent.Hold(ctx, away, there); failed == nil {
				leave(errElsewhere)
			}
		})
		var g *pool.Grant
		if w != nil {
			if g, none = w.WaitFor(here); g != nil {
				stop(errHere)
			}
		}
		asking.Wait()
		switch {
		case g != nil && rec != nil: // at the same time
			h.lent.Release(record.Member[record.Lease](rec, "lease").ID)
			fallthrough
		case g != nil:
			h.lent.Forget(there)
			return h.leaseAnswer(ctx, g, nil)
		case rec != nil:
			return rec, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		e := *control.ErrorOf(failed)
		if none != nil && len(h.service.Names()) > 0 { // else nobody expects an instance here
			e = *control.ErrorOf(none)
			e.Message += "; on other hosts: " + failed.Error()
		}
		h.service.LogRefusal(r, began, &e)
		return nil, &e
	}}, nil
}

// Why one of two requests ends of which the other has been served.
var (
	errElsewhere = errors.New("another host has served it")
	errHere      = errors.New("this host has served it")
)

// mayBeElsewhere reports whether other hosts may have what the service has not.
func mayBeElsewhere(err error) bool {
	return slices.Contains([]string{control.LeaseTimeout, control.NoneHealthy, control.QueueFull,
		control.PoolNotFound}, control.ErrorOf(err).Code)
}
