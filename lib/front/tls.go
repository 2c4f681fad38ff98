package front

import (
	"crypto/tls"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// Certificate returns how a port is encrypted with a certificate and its key, PEM files that are read again when they
// have changed. What is wrong then changes nothing, and is told once. WebSockets need HTTP/1.1.
func Certificate(cert, key string, tell func(error)) (*tls.Config, error) {
	c := &certificate{cert: cert, key: key, tell: tell}
	if err := c.read(); err != nil {
		return nil, err
	}
	return &tls.Config{GetCertificate: c.get, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}, nil
}

type certificate struct {
	cert, key string
	tell      func(error)

	mu   sync.Mutex
	now  tls.Certificate
	seen [2]fs.FileInfo
	told string
}

// get returns the certificate for a connection.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	why := ""
	if c.hasChanged() {
		if err := c.read(); err != nil {
			if why = err.Error(); why != c.told {
				c.tell(fmt.Errorf("the certificate stays as it was: %w", err))
			}
		}
	}
	c.told = why
	now := c.now
	return &now, nil
}

func (c *certificate) hasChanged() bool {
	for k, path := range []string{c.cert, c.key} {
		st, err := os.Stat(path)
		if err != nil || !os.SameFile(st, c.seen[k]) || st.ModTime() != c.seen[k].ModTime() {
			return true
		}
	}
	return false
}

func (c *certificate) read() (err error) {
	var seen [2]fs.FileInfo
	for k, path := range []string{c.cert, c.key} {
		if seen[k], err = os.Stat(path); err != nil {
			return err
		}
	}
	now, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("cannot use the certificate %s with the key %s: %w", c.cert, c.key, err)
	}
	c.now, c.seen = now, seen
	return nil
}
