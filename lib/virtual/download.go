package virtual

import (
	"context"
	"encoding/json"
	"time"

	"btools/lib/jsonrpc"
)

// download is a file that the browser downloads. Chrome reports all downloads
// to every connection with download events, along with the frame that started
// each.
type download struct {
	owned   bool              // it is known to be the session's
	pending []json.RawMessage // progress, until the owner is known
}

// findFrameTimeout bounds the search for the page of a frame.
const findFrameTimeout = 5 * time.Second

// event handles an event of the session's own connection.
func (s *Session) event(method, session string, params json.RawMessage) {
	if session != "" {
		return
	}
	switch method {
	case "Browser.downloadWillBegin":
		s.downloadStarted(params)
	case "Browser.downloadProgress":
		s.downloadProgressed(params)
	}
}

// downloadStarted reports a download to clients if it is the session's.
func (s *Session) downloadStarted(params json.RawMessage) {
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
		s.assignDownloadLocked(guid, params, t.session == s)
		return
	}
	pages := make([]string, 0, len(s.ownSessions))
	for _, own := range s.ownSessions {
		pages = append(pages, own)
	}
	s.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), findFrameTimeout)
		defer cancel()
		owned := s.hasFrame(ctx, pages, frame)
		b.mu.Lock()
		defer b.mu.Unlock()
		s.assignDownloadLocked(guid, params, owned)
	})
}

// hasFrame reports whether a frame is in one of the pages, given by the
// session's own CDP sessions.
func (s *Session) hasFrame(ctx context.Context, pages []string, frame string) bool {
	for _, page := range pages {
		tree, err := s.link.call(ctx, page, "Page.getFrameTree", nil)
		if err == nil && isFrameInTree(jsonrpc.Get(tree, "frameTree"), frame) {
			return true
		}
	}
	return false
}

// isFrameInTree reports whether a frame is in a FrameTree.
func isFrameInTree(tree json.RawMessage, frame string) bool {
	if jsonrpc.GetString(tree, "frame", "id") == frame {
		return true
	}
	for child := range jsonrpc.Elements(jsonrpc.Get(tree, "childFrames")) {
		if isFrameInTree(child, frame) {
			return true
		}
	}
	return false
}

// assignDownloadLocked reports a download of this session to its clients, and
// forgets another session's.
func (s *Session) assignDownloadLocked(guid string, params json.RawMessage, owned bool) {
	d := s.downloads[guid]
	if d == nil {
		return
	}
	if !owned {
		delete(s.downloads, guid)
		return
	}
	d.owned = true
	s.notifyDownloadLocked("Browser.downloadWillBegin", params)
	for _, p := range d.pending {
		s.progressLocked(guid, p)
	}
	d.pending = nil
}

func (s *Session) downloadProgressed(params json.RawMessage) {
	guid := jsonrpc.GetString(params, "guid")
	s.browser.mu.Lock()
	defer s.browser.mu.Unlock()
	switch d := s.downloads[guid]; {
	case d == nil:
	case d.owned:
		s.progressLocked(guid, params)
	default:
		d.pending = append(d.pending, params)
	}
}

func (s *Session) progressLocked(guid string, params json.RawMessage) {
	s.notifyDownloadLocked("Browser.downloadProgress", params)
	if jsonrpc.GetString(params, "state") != "inProgress" {
		delete(s.downloads, guid)
	}
}

func (s *Session) notifyDownloadLocked(method string, params json.RawMessage) {
	for k := range s.clients {
		for session, wants := range k.downloads {
			if wants {
				k.toClient.put(event(session, method, params))
			}
		}
	}
}
