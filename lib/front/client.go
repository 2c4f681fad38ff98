package front

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// maxAnswer bounds an answer that Get reads, in bytes: a list of targets may be long.
const maxAnswer = 16 << 20

// Get returns what a port answers to a request with this token, unless that is "". It is an
// error if the status is not 200.
func Get(ctx context.Context, url, token string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	r.Close = true
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %.200s", resp.StatusCode, b)
	}
	return b, err
}
