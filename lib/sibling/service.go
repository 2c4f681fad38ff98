package sibling

import (
	"context"
	"io"
	"slices"
	"time"

	"btools/lib/owned"
)

// Service runs a sibling that prints a record and stays.
func Service(ctx context.Context, log io.Writer, name string, args ...string) (*Browser, error) {
	path, err := Sibling(name)
	if err != nil {
		return nil, err
	}
	argv := slices.Concat([]string{path}, args, []string{"--output=json"}, owned.BindArgs())
	return Launch(ctx, Spec{Argv: argv, Timeout: 5 * time.Minute, Grace: 30 * time.Second,
		Stderr: log, Service: true})
}
