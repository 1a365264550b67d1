package embedded

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ErrInUse says that another process has the directory.
var ErrInUse = errors.New("the directory is in use by another process")

// defaultPartitions is the partition count of topics that are made without one: more than one, so that an application's tasks
// can be seen to move between its instances.
const defaultPartitions = 4

// Config configures a Cluster.
type Config struct {
	// Dir holds everything; it is made where it is missing.
	Dir    string
	Logger *slog.Logger
}

// Cluster is a running cluster of one broker on the loopback interface.
type Cluster struct {
	dir     string
	id      string
	fake    *kfake.Cluster
	auto    *autoCreate
	release func() error
	clean   string // the file that says: closed in order
	once    sync.Once
}

// Open locks the directory, loads what is in it and listens on a free port of 127.0.0.1. Topics are made when a
// producer asks for them. Every batch is synced to disk before it is acknowledged.
func Open(ctx context.Context, cfg Config) (*Cluster, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	data := filepath.Join(cfg.Dir, "log")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, fmt.Errorf("embedded log: %w", err)
	}
	release, err := lock(filepath.Join(cfg.Dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("embedded log in %s: %w", cfg.Dir, err)
	}
	c, err := open(ctx, cfg, data)
	if err != nil {
		_ = release()
		return nil, fmt.Errorf("embedded log in %s: %w", cfg.Dir, err)
	}
	c.release = release
	return c, nil
}

func open(ctx context.Context, cfg Config, data string) (*Cluster, error) {
	id, err := clusterID(filepath.Join(cfg.Dir, "cluster-id"))
	if err != nil {
		return nil, err
	}
	clean := filepath.Join(cfg.Dir, "closed")
	_, err = os.Stat(clean)
	killed := errors.Is(err, os.ErrNotExist)
	if err := os.Remove(clean); err != nil && !killed {
		return nil, err
	}
	fake, err := kfake.NewCluster(
		kfake.NumBrokers(1), kfake.ClusterID(id), kfake.DataDir(data), kfake.SyncWrites(),
		kfake.DefaultNumPartitions(defaultPartitions), kfake.MaxVersions(versions()),
		kfake.WithLogger(logger{cfg.Logger}))
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: cfg.Dir, id: id, fake: fake, clean: clean}
	if killed {
		aborted, err := c.cure(ctx)
		if err != nil {
			fake.Close()
			return nil, fmt.Errorf("transactions that were open when the process was killed: %w", err)
		}
		if aborted > 0 {
			cfg.Logger.Info("transactions that were open when the process was killed are aborted", "partitions", aborted)
		}
	}
	foldTypes(fake)
	c.auto = newAutoCreate(fake, cfg.Logger)
	return c, nil
}

// ID is the cluster id. It stays the same over restarts.
func (c *Cluster) ID() string { return c.id }

// Bootstrap is the address of the broker.
func (c *Cluster) Bootstrap() []string { return c.fake.ListenAddrs() }

// Close ends the cluster in order and lets the directory go.
func (c *Cluster) Close() error {
	var err error
	c.once.Do(func() {
		c.auto.close()
		c.fake.Close()
		err = os.WriteFile(c.clean, nil, 0o644)
		err = errors.Join(err, c.release())
	})
	return err
}

func (c *Cluster) client() (*kgo.Client, error) {
	return kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...), kgo.ClientID("streamkeeper-embedded"))
}

// clusterID reads the id of the directory, or draws one: clients that were connected to one cluster notice another.
func clusterID(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err == nil {
		if id := strings.TrimSpace(string(b)); id != "" {
			return id, nil
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	var raw [16]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return "", err
	}
	id := base64.RawURLEncoding.EncodeToString(raw[:])
	return id, os.WriteFile(path, []byte(id+"\n"), 0o644)
}

// logger hands kfake's lines to slog; its info and debug lines are about single requests.
type logger struct{ log *slog.Logger }

func (l logger) Logf(level kfake.LogLevel, format string, args ...any) {
	to := slog.LevelDebug
	switch level {
	case kfake.LogLevelError:
		to = slog.LevelError
	case kfake.LogLevelWarn:
		to = slog.LevelWarn
	}
	if ctx := context.Background(); l.log.Enabled(ctx, to) {
		l.log.Log(ctx, to, "embedded log: "+fmt.Sprintf(format, args...))
	}
}
