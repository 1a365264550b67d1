package http_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	nethttp "net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"streamkeeper/plugin"
	pluginhttp "streamkeeper/plugin/http"
)

// blindStore keeps bodies by path, and on DELETE forgets what lies below it.
type blindStore struct {
	mu     sync.Mutex
	bodies map[string][]byte
}

func (s *blindStore) ServeHTTP(w nethttp.ResponseWriter, r *nethttp.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Method {
	case "PUT":
		b, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(400)
			return
		}
		s.bodies[r.URL.Path] = b
		w.WriteHeader(201)
	case "GET":
		b, ok := s.bodies[r.URL.Path]
		if !ok {
			w.WriteHeader(404)
			return
		}
		_, _ = w.Write(b)
	case "DELETE":
		n := 0
		for path := range s.bodies {
			if strings.HasPrefix(path, r.URL.Path+"/") {
				delete(s.bodies, path)
				n++
			}
		}
		if n == 0 {
			w.WriteHeader(404)
		}
	}
}

func writePEM(t *testing.T, name, kind string, der []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func caFile(t *testing.T, s *httptest.Server) string {
	return writePEM(t, "ca.pem", "CERTIFICATE", s.Certificate().Raw)
}

// identity makes a certificate that signs itself, with its key.
func identity(t *testing.T, name string) (cert *x509.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return cert, writePEM(t, "cert.pem", "CERTIFICATE", der), writePEM(t, "key.pem", "EC PRIVATE KEY", keyDER)
}

func TestTLS(t *testing.T) {
	var peer string
	cert, certFile, keyFile := identity(t, "streamkeeper")
	s := httptest.NewUnstartedServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		peer = r.TLS.PeerCertificates[0].Subject.CommonName
		w.WriteHeader(204)
	}))
	clients := x509.NewCertPool()
	clients.AddCert(cert)
	s.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	ca := caFile(t, s)

	good := open(t, pluginhttp.Config{URL: u, CAFile: ca, CertFile: certFile, KeyFile: keyFile, ServerName: "example.com"})
	if err := set(good, "g"); err != nil || peer != "streamkeeper" {
		t.Errorf("%q, %v", peer, err)
	}
	for name, cfg := range map[string]pluginhttp.Config{
		"unknown authority": {URL: u, CertFile: certFile, KeyFile: keyFile},
		"no certificate":    {URL: u, CAFile: ca},
		"wrong name":        {URL: u, CAFile: ca, CertFile: certFile, KeyFile: keyFile, ServerName: "other.example"},
	} {
		if err := set(open(t, cfg), "g"); err == nil || plugin.IsPermanent(err) || err.Error() != "the topology catalogue can't be reached" {
			t.Errorf("%s: %v", name, err)
		} else if cause := errors.Unwrap(err); cause == nil || !strings.Contains(cause.Error(), "tls: ") {
			t.Errorf("%s: %v", name, cause)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	_, certFile, keyFile := identity(t, "x")
	notPEM := filepath.Join(t.TempDir(), "not.pem")
	if err := os.WriteFile(notPEM, bytes.Repeat([]byte("x"), 100), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := plugin.NewRegistry(pluginhttp.Factory())
	if err != nil {
		t.Fatal(err)
	}
	const addr = "http://127.0.0.1:1"
	for _, c := range []struct {
		settings map[string]string
		want     string
	}{
		{nil, `plugin http: url="": it must be given`},
		{map[string]string{"url": "catalogue:80"}, "want an address that begins with"},
		{map[string]string{"url": addr, "uri": "x"}, `unknown setting "uri": it has url, timeout.ms, description.bytes.max, connections.max, auth.header,`},
		{map[string]string{"url": addr, "timeout.ms": "0"}, `timeout.ms="0": want a number between 1 and 3600000`},
		{map[string]string{"url": addr, "timeout.ms": "3s"}, `timeout.ms="3s": want a whole number`},
		{map[string]string{"url": addr, "connections.max": "-1"}, "want a number between 1 and 10000"},
		{map[string]string{"url": addr, "description.bytes.max": "1e9"}, "want a whole number"},
		{map[string]string{"url": addr, "auth.header": "X Key"}, `auth.header="X Key": want the name of a header`},
		{map[string]string{"url": addr, "auth.value": "a", "auth.env": "HOME"}, "given more than once"},
		{map[string]string{"url": addr, "auth.value": "geheim\nX: y"}, "control character at byte 6"},
		{map[string]string{"url": addr, "auth.env": "NO_SUCH_VARIABLE_HERE"}, "the environment variable NO_SUCH_VARIABLE_HERE is empty"},
		{map[string]string{"url": addr, "auth.file": "/no/such/file"}, "no such file"},
		{map[string]string{"url": addr, "tls.ca.file": "/no/such/file"}, "no such file"},
		{map[string]string{"url": addr, "tls.ca.file": notPEM}, "no certificate in " + notPEM},
		{map[string]string{"url": addr, "tls.cert.file": certFile}, "both the certificate file and the key file"},
		{map[string]string{"url": addr, "tls.cert.file": certFile, "tls.key.file": certFile}, "our certificate for the topology catalogue: "},
	} {
		p, err := r.Open("http", c.settings)
		if p != nil || err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%v: %v, %v, want %s", c.settings, p, err, c.want)
		}
	}
	p, err := r.Open("http", map[string]string{"url": addr, "timeout.ms": "10", "tls.cert.file": certFile, "tls.key.file": keyFile, "auth.value": "Bearer x"})
	if err != nil || p.Name() != "http" {
		t.Fatal(err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := pluginhttp.New(pluginhttp.Config{}); err == nil {
		t.Error("no address")
	}
}
