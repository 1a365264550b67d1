package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// adminHeaderTimeout and adminWriteTimeout keep a peer that sends or reads nothing from holding a connection.
	adminHeaderTimeout = 5 * time.Second
	adminWriteTimeout  = 30 * time.Second
	// adminHeaderBytesMax bounds a request's header: nothing here needs more.
	adminHeaderBytesMax = 16 << 10
)

// Check says whether one part of the process is ready: nil if it is, otherwise what it waits for.
type Check struct {
	Name  string
	Ready func() error
}

// firstError is that of the first check that is not content, nil where all are.
func firstError(checks []Check) error {
	for _, c := range checks {
		if err := c.Ready(); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return nil
}

// Admin is the HTTP server for operators.
type Admin struct {
	server *http.Server
	mux    *http.ServeMux
	ln     net.Listener
	log    *slog.Logger

	mu     sync.Mutex
	checks []Check
	alive  []Check
	pages  []string // what / lists
}

// ListenAdmin opens the address at once, so that a port that is taken is an error at start; Serve answers.
// metrics may be nil.
func ListenAdmin(address string, metrics *Metrics, log *slog.Logger) (*Admin, error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--admin-listen: %w", err)
	}
	mux := http.NewServeMux()
	a := &Admin{ln: ln, log: log, mux: mux, pages: []string{"/healthz", "/readyz"}}
	mux.HandleFunc("GET /healthz", a.healthy)
	mux.HandleFunc("GET /readyz", a.ready)
	if metrics != nil {
		a.Handle("GET /metrics", metrics.Handler())
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		a.mu.Lock()
		pages := a.pages
		a.mu.Unlock()
		text(w, http.StatusOK, "streamkeeper\n\n"+strings.Join(pages, "\n")+"\n")
	})
	a.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: adminHeaderTimeout, WriteTimeout: adminWriteTimeout, MaxHeaderBytes: adminHeaderBytesMax,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return a, nil
}

// Handle adds a page; pattern is that of http.ServeMux.
func (a *Admin) Handle(pattern string, h http.Handler) {
	a.mux.Handle(pattern, h)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pages = append(a.pages, strings.TrimPrefix(pattern, "GET "))
}

// Addr is the address that is listened on.
func (a *Admin) Addr() net.Addr { return a.ln.Addr() }

// Require adds checks to /readyz.
func (a *Admin) Require(checks ...Check) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.checks = append(a.checks, checks...)
}

// RequireAlive adds checks to /healthz: of what only an end of the process mends.
func (a *Admin) RequireAlive(checks ...Check) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.alive = append(a.alive, checks...)
}

// healthy answers 503 with a line for each check that is not content.
func (a *Admin) healthy(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	checks := a.alive
	a.mu.Unlock()
	var b strings.Builder
	for _, c := range checks {
		if err := c.Ready(); err != nil {
			fmt.Fprintf(&b, "%s: %v\n", c.Name, err)
		}
	}
	if b.Len() > 0 {
		text(w, http.StatusServiceUnavailable, b.String())
		return
	}
	text(w, http.StatusOK, "ok\n")
}

// Serve answers until Close.
func (a *Admin) Serve() error {
	if err := a.server.Serve(a.ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close stops the server; requests under way may finish as long as ctx lasts.
func (a *Admin) Close(ctx context.Context) error {
	err := a.server.Shutdown(ctx)
	if err != nil {
		_ = a.server.Close()
	}
	_ = a.ln.Close() // Shutdown does not close it where Serve was never called
	return err
}

// ready answers 200 where every check is content, 503 with a line per check otherwise.
func (a *Admin) ready(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	checks := a.checks
	a.mu.Unlock()
	var b strings.Builder
	status := http.StatusOK
	if len(checks) == 0 {
		status = http.StatusServiceUnavailable
		b.WriteString("starting\n")
	}
	for _, c := range checks {
		if err := c.Ready(); err != nil {
			status = http.StatusServiceUnavailable
			fmt.Fprintf(&b, "%s: %v\n", c.Name, err)
		} else {
			fmt.Fprintf(&b, "%s: ok\n", c.Name)
		}
	}
	text(w, status, b.String())
}

func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}
