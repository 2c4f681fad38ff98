package gateway

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/downloads"
	"btools/lib/front"
	"btools/lib/logins"
	"btools/lib/pool"
	"btools/lib/pool/web"
	"btools/lib/record"
	"btools/lib/state"
)

// What a holder asks of a lease, its host answers.

// Renew extends a lease by its time to live, or by ttl if that is positive, from now. Its holder uses it again, if it
// had let it rest.
func (t *Lent) Renew(id string, ttl time.Duration) (*record.Record, error) {
	l := t.find(id)
	if l == nil {
		return nil, pool.ErrNoLease(id)
	}
	t.mu.Lock()
	t.extendLocked(l, cmp.Or(ttl, l.TTL))
	l.resting = time.Time{}
	t.mu.Unlock()
	var rec *record.Record
	if err := l.ask(t.ctx, "/renew", false, &rec); err != nil {
		return nil, err
	}
	t.mu.Lock()
	l.Record = rec // its browser may be another one
	err := t.serveLocked(l)
	t.mu.Unlock()
	return t.record(l), err
}

// Rest notes that the holder of a lease does not use it until it renews it.
func (t *Lent) Rest(id string) error {
	l := t.find(id)
	if l == nil {
		return pool.ErrNoLease(id)
	}
	t.mu.Lock()
	l.resting = time.Now()
	t.mu.Unlock()
	return l.ask(t.ctx, "/rest", false, nil)
}

// LeaseState returns the state of a lease's session, and what could not be read.
func (t *Lent) LeaseState(ctx context.Context, id string) (state *logins.State, lost []string, err error) {
	l := t.find(id)
	if l == nil {
		return nil, nil, pool.ErrNoLease(id)
	}
	var got web.State
	if err = l.ask(ctx, "/state", false, &got); err == nil {
		state, lost, err = logins.Parse(got.State)
	}
	return state, append(lost, got.Lost...), err
}

// Attach refuses to show the session of a lease.
func (t *Lent) Attach(_ context.Context, r api.AttachRequest) (any, error) {
	l := t.find(r.Lease)
	if l == nil {
		return nil, pool.ErrNoLease(r.Lease)
	}
	return nil, control.Errorf(control.Unavailable, "the lease %s is one of the host %s, where its session can be seen",
		r.Lease, l.Host())
}

// Downloads returns the downloads of a lease. It gets the files that are complete from the host, to a directory of
// the lease below dir.
func (t *Lent) Downloads(ctx context.Context, r api.DownloadsRequest, dir *state.Dir) (all []downloads.File,
	err error) {
	l := t.find(r.Lease)
	if l == nil {
		return nil, pool.ErrNoLease(r.Lease)
	}
	if l.place().url == "" {
		return nil, control.Errorf(control.Unavailable, "the lease has no browser")
	}
	if r.TimeoutMS > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(r.TimeoutMS)*time.Millisecond,
			control.Errorf(control.TryAgain, "no download has begun, or one is still in progress"))
		defer cancel()
	}
	under := func(f downloads.File) bool { return f.State == downloads.InProgress }
	for {
		all = nil
		if err := l.ask(ctx, "/downloads", true, &all); err != nil {
			return nil, err
		}
		if !r.Wait || len(all) > 0 && !slices.ContainsFunc(all, under) {
			break
		}
		select {
		case <-time.After(retryTime):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	l.fetching.Lock()
	defer l.fetching.Unlock()
	if l.ctx.Err() != nil { // what it had has been deleted
		return nil, pool.ErrNoLease(l.ID)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(l.ctx, stop)() // the end of the lease waits for this
	for k := range all {
		f := &all[k]
		if f.Path = ""; f.State == downloads.Complete {
			if f.Path, err = t.fetch(ctx, l, f.GUID, dir); err != nil {
				return nil, control.Errorf(control.Unavailable, "cannot get %s from the host %s: %v", f.Name, l.Host(),
					err)
			}
		}
	}
	return all, nil
}

// fetch gets a file from the host of a lease, unless it is there, and returns its path.
func (t *Lent) fetch(ctx context.Context, l *loan, guid string, dir *state.Dir) (path string, err error) {
	if l.dir == "" {
		below, err := dir.Make(ctx)
		if err == nil {
			l.dir, err = os.MkdirTemp(below, "lease-")
		}
		if err != nil {
			return "", err
		}
	}
	path = filepath.Join(l.dir, base64.RawURLEncoding.EncodeToString([]byte(guid))) // whatever the host calls it
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	at, leave, err := l.enter(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	resp, err := t.gateway.do(ctx, at.url+front.DownloadsPath+url.PathEscape(guid), nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("its answer is %s", resp.Status)
	}
	part, err := os.Create(path + ".part")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(part, resp.Body)
	if err = errors.Join(err, part.Close()); err != nil {
		return "", err
	}
	return path, os.Rename(part.Name(), path)
}
