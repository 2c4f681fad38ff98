package front

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"testing"
	"time"
)

// A certificate that has changed is used; one that is wrong or gone changes nothing, and is told once.
func TestCertificateThatChanges(t *testing.T) {
	t.Parallel()
	cert, key := t.TempDir()+"/cert.pem", t.TempDir()+"/key.pem"
	write := func() (der []byte) {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
		if der, err = x509.CreateCertificate(rand.Reader, about, about, k.Public(), k); err != nil {
			t.Fatal(err)
		}
		private, err := x509.MarshalPKCS8PrivateKey(k)
		if err != nil {
			t.Fatal(err)
		}
		for path, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der},
			key: {Type: "PRIVATE KEY", Bytes: private}} {
			os.Remove(path)
			if err := os.WriteFile(path, pem.EncodeToMemory(b), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return der
	}
	if _, err := Certificate(cert, key, nil); err == nil {
		t.Error("there is a certificate without its file")
	}
	first := write()
	var told []error
	c, err := Certificate(cert, key, func(err error) { told = append(told, err) })
	if err != nil {
		t.Fatal(err)
	}
	check := func(want []byte, messages int) {
		t.Helper()
		now, err := c.GetCertificate(&tls.ClientHelloInfo{})
		if err != nil || !bytes.Equal(now.Certificate[0], want) || len(told) != messages {
			t.Errorf("the certificate is another one; %v; told %v", err, told)
		}
	}
	check(first, 0)
	second := write()
	check(second, 0)
	if err := os.WriteFile(cert, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	check(second, 1)
	check(second, 1)
	os.Remove(cert)
	check(second, 2)
	check(write(), 2)
}
