package kafkatest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// RepoDir is the root of the repository.
var RepoDir = sync.OnceValue(func() string {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		panic("kafkatest: the compiler left no file names (-trimpath?), the repository can't be found")
	}
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
})

// CacheDir is where downloads and builds are kept between runs: $STREAMKEEPER_CACHE, or .cache in the repository.
func CacheDir() string {
	if d := os.Getenv("STREAMKEEPER_CACHE"); d != "" {
		return d
	}
	return filepath.Join(RepoDir(), ".cache")
}

// cached returns the directory name in the cache. If it isn't there it is made by fill, in a temporary directory
// that is renamed when fill has succeeded: what exists under its name is complete. A lock file keeps the test
// binaries that go test runs side by side from doing the same work twice.
func cached(name string, fill func(dir string) error) (string, error) {
	dir := filepath.Join(CacheDir(), name)
	if isDir(dir) {
		return dir, nil
	}
	if err := os.MkdirAll(CacheDir(), 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder: %w", err)
	}
	// One lock for everything: two Maven processes can't share a local repository safely either.
	unlock, err := lockFile(filepath.Join(CacheDir(), "lock"))
	if err != nil {
		return "", fmt.Errorf("lock the cache folder: %w", err)
	}
	defer unlock()
	if isDir(dir) {
		return dir, nil
	}
	tmp, err := os.MkdirTemp(CacheDir(), name+".new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := fill(tmp); err != nil {
		return "", fmt.Errorf("fill %s: %w", dir, err)
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return "", err
	}
	return dir, nil
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// InCI says that a test must not be skipped: the environment variable CI is set to something that isn't false.
func InCI() bool {
	v := os.Getenv("CI")
	return v != "" && v != "false" && v != "0"
}

// missing ends a test for which the machine lacks something: it is skipped, and in CI it fails.
func missing(tb testing.TB, format string, args ...any) {
	tb.Helper()
	msg := fmt.Sprintf(format, args...)
	if InCI() {
		tb.Fatalf("%s (CI is set, so this is a failure)", msg)
	}
	tb.Skipf("skipped: %s", msg)
}
