package tools

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"

	"btools/lib/browse"
	"btools/lib/mcp"
)

const (
	// ViewURI is the resource that browser_view is shown by.
	ViewURI = "ui://bmcp/view"
	// ViewFrame is the tool by which that refreshes its picture.
	ViewFrame = "browser_view_frame"

	frameWidth = 640 // pixels
)

// viewPage is an MCP App (SEP-1865): one file, without other addresses.
//
//go:embed view.html
var viewPage string

// ViewResource returns the app of browser_view as resources/list has it.
func ViewResource() json.RawMessage {
	raw, _ := json.Marshal(map[string]string{"uri": ViewURI, "name": "view", "title": "The browser, live",
		"mimeType": mcp.AppType})
	return raw
}

// ViewContents returns the app of browser_view as resources/read has it.
func ViewContents() json.RawMessage {
	raw, _ := json.Marshal(map[string]any{"uri": ViewURI, "mimeType": mcp.AppType, "text": viewPage,
		"_meta": map[string]any{"ui": map[string]any{"prefersBorder": true}}})
	return raw
}

// view shows a person the browser in the conversation: the host does, by the app.
func view(ctx context.Context, r *reply, _ struct{}) error {
	_, err := r.server.chromium(ctx)
	return r.says(err, "The user sees this browser in the conversation, and can open the page on which they take it "+
		"over.")
}

// viewFrame sends the app a picture of the page, or the address of the page of bproxy view, which is served then. It is
// no use of the page, and needs no turn.
func viewFrame(ctx context.Context, r *reply, a struct{ Open bool }) error {
	s := r.server
	if a.Open {
		if s.View == nil {
			return errors.New("there is no page for this browser")
		}
		key, address, err := s.View(ctx, true)
		if err != nil {
			return err
		}
		r.structured = map[string]string{"address": address, "command": (&reached{key: key}).command()}
		return nil
	}
	b, err := s.chromium(ctx)
	if err != nil {
		return err
	}
	if b.Count() == 0 {
		return errors.New("no page is open")
	}
	p, err := b.Current(ctx)
	if err != nil {
		return err
	}
	jpeg, err := p.(*browse.Tab).Thumbnail(ctx, frameWidth)
	if err == nil {
		r.image(jpeg, "image/jpeg")
	}
	return err
}
