package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// textHandler writes a message as "name: message key=value": what a person
// reads between the lines of other programs.
type textHandler struct {
	w     io.Writer
	name  string
	level slog.Level
	attrs []slog.Attr
}

func (h *textHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

func (h *textHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(h.name + ": ")
	if r.Level == slog.LevelWarn {
		b.WriteString("warning: ")
	}
	b.WriteString(r.Message)
	add := func(a slog.Attr) bool {
		v := a.Value.Resolve().String()
		if v == "" || strings.ContainsAny(v, " \t\n\"") {
			v = fmt.Sprintf("%q", v)
		}
		b.WriteString(" " + a.Key + "=" + v)
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	b.WriteByte('\n')
	_, err := io.WriteString(h.w, b.String()) // one write a message
	return err
}

func (h *textHandler) WithAttrs(a []slog.Attr) slog.Handler {
	c := *h
	c.attrs = append(append([]slog.Attr(nil), h.attrs...), a...)
	return &c
}

// WithGroup keeps the names flat: nothing here uses groups.
func (h *textHandler) WithGroup(string) slog.Handler { return h }
