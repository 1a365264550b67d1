package http

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

const (
	// TimeoutDefault is below plugin.TimeoutDefault, so that an error says that the catalogue is slow, not that the plugin is.
	TimeoutDefault = 3 * time.Second

	// DescriptionBytesMaxDefault bounds a body that is sent, as JSON: ten thousand nodes take about 2 MB, and services tend to
	// have limits of their own near this one.
	DescriptionBytesMaxDefault = 8 << 20

	// ConnectionsDefault bounds the connections to the catalogue; with HTTP/2 one is enough for all.
	ConnectionsDefault = 64

	// authBytesMax bounds credentials: servers take some 8 KiB of headers.
	authBytesMax = 8 << 10
)

// Config says where the catalogue is and how to talk to it. Zero values mean the defaults.
type Config struct {
	URL                 *url.URL      // http or https, without query
	Timeout             time.Duration // of one request with its answer
	DescriptionBytesMax int           // of the JSON of one description
	Connections         int

	// AuthHeader is the name of the header with credentials; "" means Authorization. Its whole value, such as
	// "Bearer …", comes from at most one of AuthValue, the environment variable AuthEnv, and the file AuthFile, which is
	// read for each request.
	AuthHeader, AuthValue, AuthEnv, AuthFile string

	// CAFile has the certificates that the catalogue's one is checked with, in PEM; "" means those of the system. CertFile and
	// KeyFile identify us; they are read for each connection. ServerName is checked in place of the address's host.
	CAFile, CertFile, KeyFile, ServerName string
}

// credentials returns the value of the header with credentials; "" means none.
func (c *Config) credentials() (string, error) {
	switch {
	case c.AuthValue != "":
		return c.AuthValue, nil
	case c.AuthEnv != "":
		v := strings.TrimSpace(os.Getenv(c.AuthEnv))
		if v == "" {
			return "", fmt.Errorf("the environment variable %s is empty", c.AuthEnv)
		}
		return v, checkHeader("the environment variable "+c.AuthEnv, v)
	case c.AuthFile != "":
		f, err := os.Open(c.AuthFile)
		if err != nil {
			return "", err
		}
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, authBytesMax+1))
		if err != nil {
			return "", err
		}
		if len(b) > authBytesMax {
			return "", fmt.Errorf("%s has more than %d bytes", c.AuthFile, authBytesMax)
		}
		v := strings.TrimSpace(string(b))
		if v == "" {
			return "", fmt.Errorf("%s is empty", c.AuthFile)
		}
		return v, checkHeader(c.AuthFile, v)
	}
	return "", nil
}

// checkHeader keeps a value with a line break or another control character, which the HTTP client would refuse by printing it.
func checkHeader(where, value string) error {
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return fmt.Errorf("%s holds a control character at byte %d, which no header may have", where, i)
		}
	}
	return nil
}

func (c *Config) check() error {
	if c.URL == nil || c.URL.Scheme != "http" && c.URL.Scheme != "https" || c.URL.Host == "" {
		return errors.New("the address of the topology catalogue is not an http or https one")
	}
	given := 0
	for _, s := range []string{c.AuthValue, c.AuthEnv, c.AuthFile} {
		if s != "" {
			given++
		}
	}
	if given > 1 {
		return errors.New("credentials for the topology catalogue are given more than once (value, environment variable, file)")
	}
	if err := checkHeader("the value of the header with credentials", c.AuthValue); err != nil {
		return err
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		return errors.New("of a certificate for the topology catalogue both the certificate file and the key file are needed")
	}
	return nil
}

func (c *Config) tls() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("certificates to check the topology catalogue with: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("certificates to check the topology catalogue with: no certificate in %s", c.CAFile)
		}
	}
	if c.CertFile != "" {
		load := func() (*tls.Certificate, error) {
			cert, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
			return &cert, err
		}
		if _, err := load(); err != nil { // a mistake shows at start
			return nil, fmt.Errorf("our certificate for the topology catalogue: %w", err)
		}
		t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return t, nil
}

// pingAfter is how long nothing may come over an HTTP/2 connection before it is asked whether it is alive: as long as calls come, one whose peer vanished would be
// used until the kernel gives it up, a quarter of an hour.
const pingAfter = 10 * time.Second

// responseHeaderBytesMax bounds an answer's headers: nothing in them is used but the type and some words.
const responseHeaderBytesMax = 64 << 10

func (c *Config) transport() (*nethttp.Transport, error) {
	t, err := c.tls()
	if err != nil {
		return nil, err
	}
	return &nethttp.Transport{
		Proxy: nethttp.ProxyFromEnvironment, TLSClientConfig: t, ForceAttemptHTTP2: true,
		MaxConnsPerHost: c.Connections, MaxIdleConns: c.Connections, MaxIdleConnsPerHost: c.Connections,
		IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: responseHeaderBytesMax,
		// A connection outlives the call that made it, and counts among Connections: one that does not come about must end by itself.
		DialContext: (&net.Dialer{Timeout: c.Timeout}).DialContext, TLSHandshakeTimeout: c.Timeout,
		HTTP2: &nethttp.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: c.Timeout},
	}, nil
}
