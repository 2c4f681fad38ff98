package control

import (
	"context"
	"encoding/json"
	"testing"
)

func BenchmarkCall(b *testing.B) {
	path := b.TempDir() + "/s"
	l, err := Listen(context.Background(), path)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	go Serve(ctx, l, func(context.Context, string, json.RawMessage) (any, error) { return 1, nil })
	defer l.Close()
	c, err := Dial(ctx, path)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for b.Loop() {
		if err := c.Call(ctx, "x", nil, nil); err != nil {
			b.Fatal(err)
		}
	}
}
