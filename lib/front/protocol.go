package front

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"time"
)

// protocolOf156 is what Chromium 156 answers to /json/protocol:
//
//	curl …/json/protocol | jq -c . | gzip -9n
//
//go:embed protocol.json.gz
var protocolOf156 []byte

// btoolsDomain describes the commands that sessions have besides.
//
//go:embed btools.json
var btoolsDomain []byte

// protocolTimeout is how long Chrome may take to describe its protocol.
const protocolTimeout = 30 * time.Second

// ServeProtocol answers /json/protocol: with the answer of the Chrome that listens at
// a host:port, or with a copy for one that listens nowhere, because no command asks
// for it.
func ServeProtocol(w http.ResponseWriter, r *http.Request, addr string) error {
	if addr == "" {
		writeProtocol(w)
		return nil
	}
	transport := &http.Transport{DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: protocolTimeout}
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+addr+"/json/protocol", nil)
	if err == nil {
		var resp *http.Response
		if resp, err = client.Do(req); err == nil {
			defer resp.Body.Close()
			setHeaders(w, resp.ContentLength)
			w.WriteHeader(resp.StatusCode)
			io.Copy(w, resp.Body)
			return nil
		}
	}
	return fmt.Errorf("the browser does not answer: %w", err)
}

// writeProtocol answers with the copy, and what sessions have besides.
func writeProtocol(w http.ResponseWriter) {
	unzipped, err := gzip.NewReader(bytes.NewReader(protocolOf156))
	if err != nil {
		panic(err) // it is a part of the program
	}
	const domains = `"domains":[`
	all, _ := io.ReadAll(unzipped)
	before, after, _ := bytes.Cut(all, []byte(domains))
	setHeaders(w, -1)
	for _, part := range [][]byte{before, []byte(domains), bytes.TrimSpace(btoolsDomain), []byte(","), after} {
		w.Write(part)
	}
}
