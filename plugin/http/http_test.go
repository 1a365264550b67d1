package http_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"streamkeeper/plugin"
	"streamkeeper/plugin/conformance"
	pluginhttp "streamkeeper/plugin/http"
	"streamkeeper/plugin/http/reference"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server that ends with the test.
func serve(t *testing.T, h nethttp.Handler) *url.URL {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func open(t *testing.T, cfg pluginhttp.Config) *pluginhttp.Plugin {
	t.Helper()
	p, err := pluginhttp.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

func one() *plugin.Description {
	return &plugin.Description{Subtopologies: []plugin.Subtopology{{ID: "0", Nodes: []plugin.Node{{Name: "<n>", Type: plugin.NodeSource, SourceTopics: []string{"t"}}}}}}
}

func set(p *pluginhttp.Plugin, group string) error {
	_, err := p.Set(context.Background(), group, 3, one()).Wait(context.Background())
	return err
}

func get(p *pluginhttp.Plugin, group string) (*plugin.Description, error) {
	return p.Get(context.Background(), group, 3).Wait(context.Background())
}

func del(p *pluginhttp.Plugin, group string) error {
	_, err := p.Delete(context.Background(), group).Wait(context.Background())
	return err
}

// patience is how long a request of the conformance suite may take: a description of 10,000 nodes takes longer than TimeoutDefault where the race detector watches on a
// machine that others use, too.
const patience = time.Minute

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) plugin.Plugin {
		p, err := pluginhttp.New(pluginhttp.Config{URL: serve(t, reference.New(0, 0)), Timeout: patience})
		if err != nil {
			t.Fatal(err)
		}
		return p
	})
}

// TestConformanceOfABlindStore: a service that keeps bodies by their path and knows nothing of their content will do, also below
// a path of its own, with small limits, and with HTTP/2 over TLS.
func TestConformanceOfABlindStore(t *testing.T) {
	conformance.Run(t, func(t *testing.T) plugin.Plugin {
		s := httptest.NewUnstartedServer(nethttp.StripPrefix("/a/b", &blindStore{bodies: map[string][]byte{}}))
		s.EnableHTTP2 = true
		s.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that a cancelled call breaks off
		s.StartTLS()
		t.Cleanup(s.Close)
		u, err := url.Parse(s.URL + "/a/b/")
		if err != nil {
			t.Fatal(err)
		}
		p, err := pluginhttp.New(pluginhttp.Config{URL: u, CAFile: caFile(t, s), DescriptionBytesMax: 200_000, Connections: 2, Timeout: patience})
		if err != nil {
			t.Fatal(err)
		}
		return p
	})
}

func TestRequests(t *testing.T) {
	type seen struct{ method, path, body, contentType, accept, agent string }
	var last seen
	u := serve(t, nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		last = seen{r.Method, r.URL.EscapedPath(), string(b), r.Header.Get("Content-Type"), r.Header.Get("Accept"), r.Header.Get("User-Agent")}
		if _, ok := r.Header["Idempotency-Key"]; ok {
			t.Error("an empty idempotency key is sent")
		}
		w.WriteHeader(nethttp.StatusNoContent)
	}))
	p := open(t, pluginhttp.Config{URL: u.JoinPath("cat")})
	if err := set(p, "a/ü"); err != nil {
		t.Fatal(err)
	}
	body := `{"group":"a/ü","topologyEpoch":3,"description":{"subtopologies":[{"id":"0","nodes":[{"type":"source","name":"<n>","topics":["t"],"successors":[]}]}],"globalStores":[]}}`
	if want := (seen{"PUT", "/cat/groups/a~2F~C3~BC/topologies/3", body, "application/json", "application/json", "streamkeeper"}); last != want {
		t.Errorf("%+v\nwant %+v", last, want)
	}
	if d, err := get(p, "x"); d != nil || err != nil { // 204
		t.Errorf("%v, %v", d, err)
	}
	if want := (seen{"GET", "/cat/groups/x/topologies/3", "", "", "application/json", "streamkeeper"}); last != want {
		t.Errorf("%+v", last)
	}
	if err := del(p, ".."); err != nil {
		t.Fatal(err)
	}
	if want := (seen{"DELETE", "/cat/groups/~2E~2E/topologies", "", "", "application/json", "streamkeeper"}); last != want {
		t.Errorf("%+v", last)
	}
}

// TestStatusCodes is the table of the package's comment.
func TestStatusCodes(t *testing.T) {
	var status atomic.Int64
	u := serve(t, nethttp.HandlerFunc(func(w nethttp.ResponseWriter, _ *nethttp.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Location", "http://127.0.0.1:1/")
		w.WriteHeader(int(status.Load()))
		if s := status.Load(); s != 204 && s != 304 {
			_, _ = io.WriteString(w, "because\n")
		}
	}))
	p := open(t, pluginhttp.Config{URL: u})
	good, permanent, nothing := map[int]bool{}, map[int]bool{}, map[int]bool{}
	for _, s := range []int{200, 201, 202, 204} {
		good[s] = true
	}
	for _, s := range []int{400, 413, 414, 415, 422, 451} {
		permanent[s] = true
	}
	for _, s := range []int{204, 404, 410} {
		nothing[s] = true
	}
	for _, s := range []int{200, 201, 202, 204, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 405, 406, 408, 409, 410, 411, 412, 413, 414, 415, 416, 422, 423, 425, 429, 431, 451, 499, 500, 501, 502, 503, 504, 507, 599} {
		status.Store(int64(s))
		if err := set(p, "g"); (err == nil) != good[s] || plugin.IsPermanent(err) != permanent[s] {
			t.Errorf("PUT, %d: %v", s, err)
		} else if err != nil && (!strings.Contains(err.Error(), fmt.Sprintf("the topology catalogue answered %d", s)) || s != 304 && !strings.HasSuffix(err.Error(), "because")) {
			t.Errorf("PUT, %d: the text is %q", s, err)
		}
		d, err := get(p, "g")
		if d != nil || (err == nil) != nothing[s] || plugin.IsPermanent(err) {
			t.Errorf("GET, %d: %v, %v", s, d, err)
		}
		if err := del(p, "g"); (err == nil) != (good[s] || nothing[s]) || plugin.IsPermanent(err) {
			t.Errorf("DELETE, %d: %v", s, err)
		}
	}
}

func TestReasons(t *testing.T) {
	for _, c := range []struct{ media, body, want string }{
		{"application/problem+json", `{"title":"Bad","detail":"node names must be short"}`, ": node names must be short"},
		{"application/json; charset=utf-8", `{"message":"  two\n lines "}`, ": two lines"},
		{"application/json", `{"error":"e","title":7}`, ": e"},
		{"application/json", `{"detail":""}`, ""},
		{"application/json", `["x"]`, ""},
		{"application/json", `{`, ""},
		{"text/plain", "x\xff\x00y", ": x?\x00y"},
		{"text/plain", strings.Repeat("é", 100_000), ": " + strings.Repeat("é", 250) + "…"},
		{"text/html", "<h1>no</h1>", ""},
		{"", "x", ""},
	} {
		u := serve(t, nethttp.HandlerFunc(func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			w.Header()["Content-Type"] = []string{c.media}
			w.WriteHeader(422)
			_, _ = io.WriteString(w, c.body)
		}))
		err := set(open(t, pluginhttp.Config{URL: u}), "g")
		if want := "the topology catalogue answered 422 Unprocessable Entity" + c.want; err == nil || err.Error() != want || !plugin.IsPermanent(err) {
			t.Errorf("%s %.40q: %v", c.media, c.body, err)
		}
	}
	u := serve(t, nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		w.Header().Set("Retry-After", "120")
		w.Header().Set("Location", "https://elsewhere/")
		w.WriteHeader(map[string]int{"PUT": 503, "GET": 307}[r.Method])
	}))
	p := open(t, pluginhttp.Config{URL: u})
	if err := set(p, "g"); err == nil || err.Error() != "the topology catalogue answered 503 Service Unavailable (Retry-After: 120)" {
		t.Errorf("%v", err)
	}
	if _, err := get(p, "g"); err == nil || !strings.HasPrefix(err.Error(), "the topology catalogue answered 307 Temporary Redirect (to https://elsewhere/)") {
		t.Errorf("%v", err)
	}
}

func TestUnusableAnswers(t *testing.T) {
	var body string
	u := serve(t, nethttp.HandlerFunc(func(w nethttp.ResponseWriter, _ *nethttp.Request) { _, _ = io.WriteString(w, body) }))
	p := open(t, pluginhttp.Config{URL: u, DescriptionBytesMax: 1000})
	const empty = `"description":{"subtopologies":[],"globalStores":[]}`
	for in, want := range map[string]string{
		"":                                  "unexpected end of JSON input",
		"<html>":                            "invalid character",
		"null":                              `there is no "description" in it`,
		"{}":                                `there is no "description" in it`,
		`{"description":null}`:              `there is no "description" in it`,
		`{"description":[]}`:                "cannot unmarshal array",
		`{"group":"h",` + empty + `}`:       `it is of the group "h"`,
		`{"topologyEpoch":2,` + empty + `}`: "it is of topology epoch 2",
		`{"description":{"subtopologies":[{"nodes":[{"type":"x","name":"n"}]}]}}`: `unknown type "x"`,
		strings.Repeat(" ", 1000+(1<<20)+1):                                       "answer has more than 1049576 bytes",
	} {
		body = in
		d, err := get(p, "g")
		if d != nil || err == nil || plugin.IsPermanent(err) {
			t.Errorf("%.60q: %v, %v", in, d, err)
			continue
		}
		text := err.Error()
		if cause := errors.Unwrap(err); cause != nil {
			text += ": " + cause.Error()
		}
		if !strings.Contains(text, want) {
			t.Errorf("%.60q: %s, want %s", in, text, want)
		}
	}
	for _, in := range []string{`{` + empty + `}`, `{"group":"g","topologyEpoch":3,"more":{"a":[1]},` + empty + `}`} {
		body = in
		if d, err := get(p, "g"); err != nil || !d.Equal(&plugin.Description{}) {
			t.Errorf("%s: %v, %v", in, d, err)
		}
	}
	body = `{"group":"\ufffd\ufffda",` + empty + `}`
	if d, err := get(p, "\xe2\x82a"); err != nil || d == nil {
		t.Errorf("an id that is no UTF-8: %v, %v", d, err)
	}
}

// TestLimits: what is too large is refused for good without a request.
func TestLimits(t *testing.T) {
	var requests atomic.Int64
	u := serve(t, nethttp.HandlerFunc(func(w nethttp.ResponseWriter, _ *nethttp.Request) { requests.Add(1); w.WriteHeader(204) }))
	body, err := pluginhttp.Document{Group: "g", TopologyEpoch: 3, Description: one()}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, pluginhttp.Config{URL: u, DescriptionBytesMax: len(body) - 1})
	want := fmt.Sprintf("the topology description has %d bytes as JSON, more than the %d that are accepted", len(body), len(body)-1)
	if err := set(p, "g"); err == nil || !plugin.IsPermanent(err) || err.Error() != want {
		t.Errorf("%v", err)
	}
	p = open(t, pluginhttp.Config{URL: u, DescriptionBytesMax: 1 << 20})
	long := strings.Repeat("/", 2001)
	if err := set(p, long); err == nil || !plugin.IsPermanent(err) || !strings.Contains(err.Error(), "takes 6003 bytes in an address, more than the 6000") {
		t.Errorf("%v", err)
	}
	if d, err := get(p, long); d != nil || err != nil {
		t.Errorf("%v, %v", d, err)
	}
	if err := del(p, long); err != nil {
		t.Error(err)
	}
	_, err = p.Set(context.Background(), "g", 0, &plugin.Description{Subtopologies: []plugin.Subtopology{{Nodes: []plugin.Node{{Type: 5}}}}}).Wait(context.Background())
	if !plugin.IsPermanent(err) {
		t.Errorf("a description that is none: %v", err)
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests", n)
	}
	if err := set(p, strings.Repeat("/", 2000)); err != nil || requests.Load() != 1 {
		t.Errorf("the longest id: %v", err)
	}
}

// TestTraceContext: the request carries the span of the call, so the catalogue's own spans hang below it.
func TestTraceContext(t *testing.T) {
	var got trace.SpanContext
	var state string
	u := serve(t, nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		got = trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(r.Header)))
		state = r.Header.Get("tracestate")
		w.WriteHeader(204)
	}))
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
	traced, err := plugin.NewTraced(open(t, pluginhttp.Config{URL: u}), plugin.Config{Tracer: tracer})
	if err != nil {
		t.Fatal(err)
	}
	states, err := trace.ParseTraceState("vendor=x")
	if err != nil {
		t.Fatal(err)
	}
	remote := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: states, Remote: true})
	done := make(chan plugin.Outcome, 1)
	traced.Set(trace.ContextWithSpanContext(context.Background(), remote), plugin.SetCall{Group: "g", Description: one()}, func(o plugin.Outcome) { done <- o })
	if o := <-done; o.Kind != plugin.Stored {
		t.Fatal(o)
	}
	if err := traced.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	span := recorder.Ended()[0]
	if got.TraceID() != remote.TraceID() || got.SpanID() != span.SpanContext().SpanID() || !got.IsSampled() || state != "vendor=x" {
		t.Errorf("the catalogue saw %+v (%s), the span is %+v", got, state, span.SpanContext())
	}
}

func TestCredentials(t *testing.T) {
	var header, value string
	u := serve(t, nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) { value = r.Header.Get(header); w.WriteHeader(204) }))
	header = "Authorization"
	if err := set(open(t, pluginhttp.Config{URL: u}), "g"); err != nil || value != "" {
		t.Errorf("%q, %v", value, err)
	}
	if err := set(open(t, pluginhttp.Config{URL: u, AuthValue: "Bearer v"}), "g"); err != nil || value != "Bearer v" {
		t.Errorf("%q, %v", value, err)
	}
	header = "X-Key"
	t.Setenv("CATALOGUE_KEY", " from-env ")
	if err := set(open(t, pluginhttp.Config{URL: u, AuthHeader: "x-key", AuthEnv: "CATALOGUE_KEY"}), "g"); err != nil || value != "from-env" {
		t.Errorf("%q, %v", value, err)
	}
	file := filepath.Join(t.TempDir(), "token")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	p := open(t, pluginhttp.Config{URL: u, AuthHeader: "x-key", AuthFile: file})
	if err := set(p, "g"); err != nil || value != "first" {
		t.Errorf("%q, %v", value, err)
	}
	write("second") // rotated
	if err := set(p, "g"); err != nil || value != "second" {
		t.Errorf("%q, %v", value, err)
	}
	for content, want := range map[string]string{"": "is empty", "a\nb": "control character at byte 1", strings.Repeat("x", 9000): "more than 8192 bytes"} {
		write(content)
		err := set(p, "g")
		if err == nil || plugin.IsPermanent(err) || err.Error() != "there are no credentials for the topology catalogue" || !strings.Contains(errors.Unwrap(err).Error(), want) {
			t.Errorf("%.10q: %v (%v)", content, err, errors.Unwrap(err))
		}
	}
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &url.URL{Scheme: "http", Host: l.Addr().String()}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p := open(t, pluginhttp.Config{URL: u})
	for _, err := range []error{set(p, "g"), del(p, "g")} {
		if err == nil || plugin.IsPermanent(err) || err.Error() != "the topology catalogue can't be reached" || !strings.Contains(errors.Unwrap(err).Error(), u.Host) {
			t.Errorf("%v (%v)", err, errors.Unwrap(err))
		}
	}
}

// hanging is a service that accepts requests and does not answer until the test ends.
func hanging(t *testing.T) *url.URL {
	end := make(chan struct{})
	u := serve(t, nethttp.HandlerFunc(func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		select {
		case <-end:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { close(end) })
	return u
}

func TestSlowCatalogue(t *testing.T) {
	p := open(t, pluginhttp.Config{URL: hanging(t), Timeout: 20 * time.Millisecond})
	if err := set(p, "g"); err == nil || plugin.IsPermanent(err) || err.Error() != "the topology catalogue did not answer within 20ms" {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, err := open(t, pluginhttp.Config{URL: hanging(t)}).Delete(ctx, "g").Wait(context.Background()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the caller's own time-out: %v", err)
	}
	// An answer whose body never ends.
	u := serve(t, nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		_, _ = io.WriteString(w, "{")
		w.(nethttp.Flusher).Flush()
		<-r.Context().Done()
	}))
	if _, err := get(open(t, pluginhttp.Config{URL: u, Timeout: 20 * time.Millisecond}), "g"); err == nil || err.Error() != "the topology catalogue did not answer within 20ms" {
		t.Errorf("%v", err)
	}
}

// TestCloseBreaksOff: requests under way end with Close.
func TestCloseBreaksOff(t *testing.T) {
	arrived := make(chan struct{})
	u := serve(t, nethttp.HandlerFunc(func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		// The server only sees the connection go once the body is read.
		_, _ = io.Copy(io.Discard, r.Body)
		close(arrived)
		<-r.Context().Done()
	}))
	p := open(t, pluginhttp.Config{URL: u, Timeout: time.Minute})
	f := p.Set(context.Background(), "g", 0, one())
	<-arrived
	if err := p.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Wait(context.Background()); !errors.Is(err, plugin.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// TestConnectionThatWasClosed: a service that closes idle connections costs no failure.
func TestConnectionThatWasClosed(t *testing.T) {
	s := httptest.NewServer(reference.New(0, 0))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, pluginhttp.Config{URL: u, Connections: 1})
	for range 20 {
		if err := set(p, "g"); err != nil {
			t.Fatal(err)
		}
		s.CloseClientConnections()
	}
}
