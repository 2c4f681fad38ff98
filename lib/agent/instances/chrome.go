package instances

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"btools/lib/client"
	"btools/lib/extension"
	"btools/lib/owned"
	"btools/lib/record"
	"btools/lib/tail"
	"btools/lib/wait"
)

// Chrome opens no debugging endpoint on the profile of a user, and loads no
// extension from the command line: the user has installed the extension in the
// profile. It learns the mark of the launch from the address of its own page,
// which is the first one.

// openProfile starts a browser of the user's with a profile, and holds it.
func (s *Set) openProfile(ctx context.Context, hub client.Proxy, r Request) (*launched, error) {
	p, err := s.profile(r.Profile)
	if err != nil {
		return nil, err
	}
	if p.InUse {
		return nil, fmt.Errorf("the profile %s of %s is in use: close that browser, or have it join by its extension",
			p.Directory, p.Browser)
	}
	_, path, err := s.installed(ctx, func(b record.Browser) bool {
		return b.Type == p.Browser && b.Channel == "stable" && filepath.IsAbs(b.Path)
	}, fmt.Errorf("%s, whose profile %s is, is not installed", p.Browser, p.Directory))
	if err != nil {
		return nil, err
	}
	mark := rand.Text()
	first, err := firstPage(hub, mark, r)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, "--user-data-dir="+p.userData, "--profile-directory="+p.Directory, "--no-first-run",
		"--no-default-browser-check", first)
	var said tail.Tail
	cmd.Stderr = &said
	process, err := owned.Start(cmd, false)
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", path, err)
	}
	l := &launched{Mode: Chrome, Profile: p.Browser + "/" + p.Directory}
	l.ended, l.stop = hold(process, p.userData)
	if err := l.awaitJoin(ctx, hub, mark); err != nil {
		if lines := said.Lines(); wait.Closed(l.ended) && len(lines) > 0 {
			err = fmt.Errorf("%w (its last words: %s)", err, lines[len(lines)-1])
		}
		l.stop()
		return nil, err
	}
	return l, nil
}

// firstPage returns the address of the extension's page that tells it the mark. It
// is proved to be from a program that knows the pairing code.
func firstPage(hub client.Proxy, mark string, r Request) (string, error) {
	code, err := extension.ReadFile(hub.PairingFile)
	if err != nil {
		return "", err
	}
	q := url.Values{"mark": {mark}, "at": {strconv.FormatInt(time.Now().UnixMilli(), 10)}}
	if r.CloseOtherTabs {
		q.Set("only", "true")
	}
	text := q.Encode()
	return extension.Origin + "/launch.html#" + text + "&proof=" + code.Prove("launch "+text), nil
}

// hold returns what is closed when a browser and its group have ended, and a
// function that stops them: by TERM, by KILL after stopBound.
func hold(p *owned.Process, userData string) (ended <-chan struct{}, stop func()) {
	done := make(chan struct{})
	go func() {
		<-p.Ended
		if p.GroupLives() {
			p.Kill() // what it has left has nothing to save
		}
		p.Release()
		removeLock(userData, p.PID())
		close(done)
	}()
	return done, func() {
		if wait.Closed(done) { // and its number may be somebody else's
			return
		}
		owned.End(done, owned.Step{Do: p.Terminate, Wait: stopBound}, owned.Step{Do: p.Kill, Wait: stopBound})
	}
}

// awaitJoin waits until the browser's own extension has joined the hub.
func (l *launched) awaitJoin(ctx context.Context, hub client.Proxy, mark string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, joinBound, fmt.Errorf("it has not joined the hub %s within %v; its "+
		"profile must have the extension that bproxy extension writes, paired with that hub", hub.HTTPURL, joinBound))
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		select {
		case <-l.ended:
			end(errors.New("the browser has ended, or another one has the profile open"))
		case <-ctx.Done():
		}
	}()
	var err error
	if l.joined, err = hub.Joined(ctx, mark); err != nil {
		return fmt.Errorf("Extension failed to connect: %w", err)
	}
	return nil
}
