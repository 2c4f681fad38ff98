package virtual

import (
	"context"
	"encoding/json"
	"time"

	"btools/lib/jsonrpc"
)

// download is a file that the browser downloads. Chrome tells every connection
// that watches downloads of all of them, with the frame that began it.
type download struct {
	owned   bool              // it is known to be the session's
	waiting []json.RawMessage // progress, until it is known whose it is
}

// findFrameWithin bounds the search for the page of a frame.
const findFrameWithin = 5 * time.Second

// event takes an event of the session's own connection.
func (s *Session) event(method, session string, params json.RawMessage) {
	if session != "" {
		return
	}
	switch method {
	case "Browser.downloadWillBegin":
		s.downloadBegins(params)
	case "Browser.downloadProgress":
		s.downloadGoesOn(params)
	}
}

// downloadBegins tells clients of a download if it is the session's.
func (s *Session) downloadBegins(params json.RawMessage) {
	b := s.browser
	guid, frame := jsonrpc.GetString(params, "guid"), jsonrpc.GetString(params, "frameId")
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.over {
		return
	}
	d := &download{}
	s.downloads[guid] = d
	if t := b.targets[frame]; t != nil { // the ID of a main frame is its target's
		s.decideLocked(guid, params, t.session == s)
		return
	}
	pages := make([]string, 0, len(s.mine))
	for _, own := range s.mine {
		pages = append(pages, own)
	}
	s.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), findFrameWithin)
		defer cancel()
		owned := s.hasFrame(ctx, pages, frame)
		b.mu.Lock()
		defer b.mu.Unlock()
		s.decideLocked(guid, params, owned)
	})
}

// hasFrame reports whether a frame is in one of the pages, which are named by
// the session's own CDP sessions.
func (s *Session) hasFrame(ctx context.Context, pages []string, frame string) bool {
	for _, page := range pages {
		tree, err := s.link.call(ctx, page, "Page.getFrameTree", nil)
		if err == nil && inTree(jsonrpc.Get(tree, "frameTree"), frame) {
			return true
		}
	}
	return false
}

// inTree reports whether a frame is in a FrameTree.
func inTree(tree json.RawMessage, frame string) bool {
	if jsonrpc.GetString(tree, "frame", "id") == frame {
		return true
	}
	for child := range jsonrpc.Elements(jsonrpc.Get(tree, "childFrames")) {
		if inTree(child, frame) {
			return true
		}
	}
	return false
}

// decideLocked tells clients of a download that is theirs, and forgets others.
func (s *Session) decideLocked(guid string, params json.RawMessage, owned bool) {
	d := s.downloads[guid]
	if d == nil {
		return
	}
	if !owned {
		delete(s.downloads, guid)
		return
	}
	d.owned = true
	s.tellDownloadLocked("Browser.downloadWillBegin", params)
	for _, p := range d.waiting {
		s.progressLocked(guid, p)
	}
	d.waiting = nil
}

func (s *Session) downloadGoesOn(params json.RawMessage) {
	guid := jsonrpc.GetString(params, "guid")
	s.browser.mu.Lock()
	defer s.browser.mu.Unlock()
	switch d := s.downloads[guid]; {
	case d == nil:
	case d.owned:
		s.progressLocked(guid, params)
	default:
		d.waiting = append(d.waiting, params)
	}
}

func (s *Session) progressLocked(guid string, params json.RawMessage) {
	s.tellDownloadLocked("Browser.downloadProgress", params)
	if jsonrpc.GetString(params, "state") != "inProgress" {
		delete(s.downloads, guid)
	}
}

func (s *Session) tellDownloadLocked(method string, params json.RawMessage) {
	for k := range s.clients {
		for session, wants := range k.downloads {
			if wants {
				k.toClient.put(event(session, method, params))
			}
		}
	}
}
