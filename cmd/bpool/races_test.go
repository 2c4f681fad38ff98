//go:build linux

package main_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// Who disconnects once the answer is there keeps the lease.
func TestLeaseOfAClientThatDisconnects(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	cmdtest.WriteFile(t, w.Dir+"/tokens", "ci "+ciToken+" trust\n")
	p := w.WebPool([]string{"--token-file", w.Dir + "/tokens"}, "_A_IS_DEFAULT=1", "_A_LAUNCH=false",
		"_A_INSTANCES=200")
	for range 200 {
		c, err := net.Dial("tcp", strings.TrimPrefix(p.HTTP, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST /lease HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\n"+
			"Content-Length: 2\r\n\r\n{}", ciToken)
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, answer.Body)
		c.Close()
	}
	_, b := webClient{t, p.HTTP, ciToken}.do("/leases", "")
	if n := strings.Count(b, `"lease_`); n != 200 {
		t.Errorf("%d of 200 leases are left", n)
	}
}
