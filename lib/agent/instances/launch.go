package instances

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"btools/lib/cdp"
	"btools/lib/client"
	"btools/lib/record"
	"btools/lib/sibling"
)

const (
	startBound = 15 * time.Second // until the debugging endpoint answers
	joinBound  = 30 * time.Second // until the extension has connected
	stopBound  = 5 * time.Second  // from TERM to KILL
	tabsBound  = 10 * time.Second // for closing other tabs
)

// schemes are those of the pages that an agent may have opened. Others, such as
// file, are for its user.
var schemes = []string{"http", "https", "about", "data", "blob"}

// checkURL refuses an address that a browser may take for something else.
func checkURL(address string) error {
	if address == "" {
		return nil
	}
	u, err := url.Parse(address)
	if err != nil || !slices.Contains(schemes, u.Scheme) {
		return fmt.Errorf("url must be an address such as https://example.com/, not %q", address)
	}
	return nil
}

// launch launches a browser of its own by blaunch, and holds it.
func (s *Set) launch(ctx context.Context, hub client.Proxy, r Request) (*launched, error) {
	kind, channel, missing := record.Chromium, "", errors.New("no Chromium is installed")
	if r.Mode == Testing {
		kind, channel, missing = record.Chrome, "testing", errors.New("no Chrome for Testing is installed")
	}
	browser, _, err := s.installed(ctx, func(b record.Browser) bool {
		return b.Type == kind && (channel == "" || b.Channel == channel)
	}, missing)
	if err != nil {
		return nil, err
	}
	headless := r.Mode == Chromium && (r.Headless == nil || *r.Headless)
	args := []string{"--extension", "--hub=" + hub.HTTPURL, "--owner=bmcp"}
	if !headless {
		args = append(args, "--no-headless")
	}
	for _, e := range r.Extensions {
		dir, err := s.extension(e)
		if err != nil {
			return nil, err
		}
		args = append(args, "--arg=--load-extension="+dir)
	}
	spec, err := sibling.Blaunch(startBound, stopBound, s.Stderr, "info", "text", args)
	if err != nil {
		return nil, err
	}
	spec.Timeout += joinBound
	spec.Input = record.New()
	spec.Input.SetRaw("browser", browser)
	b, err := sibling.Launch(ctx, spec)
	if err != nil {
		return nil, err
	}
	l := &launched{Mode: r.Mode, Headless: headless, ended: b.Ended(), stop: b.Stop}
	if ok, err := b.Record.Get("joined", &l.joined); err != nil || !ok {
		b.Stop()
		return nil, errors.Join(errors.New("blaunch has not said what has joined"), err)
	}
	if r.CloseOtherTabs {
		if err := closeOtherTabs(ctx, b.Instance.WSURL); err != nil {
			b.Stop()
			return nil, fmt.Errorf("cannot close the other tabs: %w", err)
		}
	}
	return l, nil
}

// installed returns the first installed browser that fits, as it was found, and its path.
func (s *Set) installed(ctx context.Context, fits func(record.Browser) bool, missing error) (
	raw json.RawMessage, path string, err error) {
	all, err := s.Detect(ctx)
	if err != nil {
		return nil, "", err
	}
	for _, raw := range all {
		var b record.Browser
		if json.Unmarshal(raw, &b) == nil && fits(b) {
			return raw, b.Path, nil
		}
	}
	return nil, "", missing
}

// extension returns the directory of an extension that an agent names.
func (s *Set) extension(name string) (string, error) {
	if s.Dir == "" {
		return "", errors.New("extensions are loaded from the directory in which bmcp was started, unless that is " +
			"or holds the home directory")
	}
	dir := name
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(s.Dir, dir)
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("there is no extension %s", name)
	}
	if rel, err := filepath.Rel(s.Dir, dir); err != nil || !filepath.IsLocal(rel) {
		return "", fmt.Errorf("the extension %s is not in %s", name, s.Dir)
	}
	if _, err := os.Stat(filepath.Join(dir, "manifest.json")); err != nil || strings.Contains(dir, ",") {
		return "", fmt.Errorf("%s is not the directory of an extension: it has no manifest.json", name)
	}
	return dir, nil
}

// closeOtherTabs opens a blank page and closes all others, such as those that
// extensions have opened.
func closeOtherTabs(ctx context.Context, browser string) error {
	ctx, cancel := context.WithTimeout(ctx, tabsBound)
	defer cancel()
	c, err := cdp.Dial(ctx, browser, func(cdp.Event) {})
	if err != nil {
		return err
	}
	defer c.Close()
	var before struct {
		TargetInfos []struct{ TargetID, Type string }
	}
	err = c.Call(ctx, "", "Target.getTargets", nil, &before)
	if err == nil {
		err = c.Call(ctx, "", "Target.createTarget", map[string]string{"url": "about:blank"}, nil)
	}
	for _, t := range before.TargetInfos {
		if err == nil && t.Type == "page" {
			err = c.Call(ctx, "", "Target.closeTarget", map[string]string{"targetId": t.TargetID}, nil)
		}
	}
	return err
}
