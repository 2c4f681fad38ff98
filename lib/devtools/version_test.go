package devtools

import (
	"strings"
	"testing"
)

func TestReadVersion(t *testing.T) {
	v, err := readVersion(strings.NewReader("HTTP/1.1 200 OK\r\nContent-Length: 43\r\n\r\n" +
		"{\"webSocketDebuggerUrl\":\"ws://x/y\",\"z\":[0]}and more"))
	if err != nil || v.WSURL != "ws://x/y" {
		t.Errorf("%+v, %v", v, err)
	}
	for answer, want := range map[string]string{
		"":                                  "no answer",
		"SSH-2.0-OpenSSH\r\n":               "it answered",
		"HTTP/1.1 404 No\r\n\r\n":           "it answered",
		"HTTP/1.1 200 OK\r\nbad\r\n\r\n":    "bad head",
		"HTTP/1.1 200 OK\r\n\r\n<html>":     "no debugging endpoint",
		strings.Repeat("x", 2*maxBody):      "answer",
		"HTTP/1.1 200 OK\r\n\r\n{\"webSock": "no debugging endpoint",
	} {
		if v, err := readVersion(strings.NewReader(answer)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %+v, %v, want %q", answer, v, err, want)
		}
	}
}

func FuzzReadVersion(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{}  ")
	f.Fuzz(func(t *testing.T, answer string) {
		if v, err := readVersion(strings.NewReader(answer)); (v == nil) == (err == nil) {
			t.Errorf("%+v, %v", v, err)
		}
	})
}
