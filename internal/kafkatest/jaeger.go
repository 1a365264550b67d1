package kafkatest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Jaeger is a running Jaeger with its storage in memory.
type Jaeger struct {
	// OTLP is where spans are sent to, as OTEL_EXPORTER_OTLP_ENDPOINT has it (http/protobuf); API is where /api/traces is.
	OTLP, API string
}

const (
	jaegerBuildTimeout = 60 * time.Minute // 5 minutes of processor time, on a machine that may be busy
	jaegerReadyTimeout = 60 * time.Second
)

// ErrNoJaeger says that Jaeger is not in the cache.
var ErrNoJaeger = errors.New("no Jaeger in the cache; make jaeger builds it")

// StartJaeger starts the Jaeger of the cache; if there is none it builds one (from tests/jaeger, a module of its own), or fails with
// ErrNoJaeger. It ends with the test.
func StartJaeger(tb testing.TB, build bool) (*Jaeger, error) {
	tb.Helper()
	bin, err := jaegerBinary(build)
	if err != nil {
		return nil, err
	}
	port, err := ReservePorts(3)
	if err != nil {
		return nil, err
	}
	dir := tb.TempDir()
	config := filepath.Join(dir, "jaeger.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, jaegerConfig, port, port+1, port+2), 0o644); err != nil {
		return nil, err
	}
	log := filepath.Join(dir, "jaeger.log")
	logTailOnFailure(tb, "Jaeger", log)
	p, err := startProcess("Jaeger", dir, log, nil, bin, "--config", config)
	if err != nil {
		return nil, err
	}
	tb.Cleanup(p.kill)
	j := &Jaeger{OTLP: fmt.Sprintf("http://127.0.0.1:%d", port), API: fmt.Sprintf("http://127.0.0.1:%d", port+1)}
	return j, p.waitFor("/api/services answers", jaegerReadyTimeout, func() (bool, error) {
		resp, err := http.Get(j.API + "/api/services")
		if err != nil {
			return false, err
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK, nil
	})
}

// jaegerConfig has the ports of OTLP, of the query API, and of its gRPC side, which can't be left out.
const jaegerConfig = `service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines:
    traces: {receivers: [otlp], exporters: [jaeger_storage_exporter]}
  telemetry: {metrics: {level: none}, logs: {level: warn}}
receivers:
  otlp: {protocols: {http: {endpoint: "127.0.0.1:%d"}}}
extensions:
  jaeger_storage: {backends: {memory: {memory: {max_traces: 100000}}}}
  jaeger_query: {storage: {traces: memory}, http: {endpoint: "127.0.0.1:%d"}, grpc: {endpoint: "127.0.0.1:%d"}}
exporters:
  jaeger_storage_exporter: {trace_storage: memory}
`

// jaegerBinary is the one in the cache, under a name that follows from its module's versions.
func jaegerBinary(build bool) (string, error) {
	module := filepath.Join(RepoDir(), "tests", "jaeger")
	versions, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(versions)
	name := "jaeger-" + hex.EncodeToString(sum[:])[:12]
	if !build && !isDir(filepath.Join(CacheDir(), name)) {
		return "", ErrNoJaeger
	}
	dir, err := cached(name, func(dir string) error {
		out, errOut, exit, err := runTool(jaegerBuildTimeout, nil, "go", "build", "-C", module, "-trimpath", "-ldflags=-s -w",
			"-o", filepath.Join(dir, "jaeger"), "github.com/jaegertracing/jaeger/cmd/jaeger")
		if err != nil || exit != 0 {
			return fmt.Errorf("go build of Jaeger: exit %d, %w\n%s%s", exit, orNone(err), tail(out), tail(errOut))
		}
		return nil
	})
	return filepath.Join(dir, "jaeger"), err
}
