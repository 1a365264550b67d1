package kafkatest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

const workdirPrefix = "streamkeeper-test-"

// workRoot is this test binary's folder for what outlives a single test (shared clusters). The first call removes
// the folders of test binaries that ended without doing it themselves; a lock held for life tells the living.
var workRoot = sync.OnceValues(func() (string, error) {
	tmp := os.TempDir()
	old, err := filepath.Glob(filepath.Join(tmp, workdirPrefix+"*"))
	if err != nil {
		return "", err
	}
	for _, dir := range old {
		if unlock, ok, err := tryLockFile(filepath.Join(dir, "alive")); err == nil && ok {
			os.RemoveAll(dir)
			unlock()
		}
	}
	// Locked before it has its name, so that nobody takes it for a dead one's.
	tmpDir, err := os.MkdirTemp(tmp, "streamkeeper-new-")
	if err != nil {
		return "", err
	}
	if workRootUnlock, err = lockFile(filepath.Join(tmpDir, "alive")); err != nil {
		return "", err
	}
	dir := filepath.Join(tmp, workdirPrefix+strconv.Itoa(os.Getpid()))
	if err := os.Rename(tmpDir, dir); err != nil {
		return "", err
	}
	return dir, nil
})

// workRootUnlock is never called: the kernel unlocks when the process ends. It is kept because a file that nothing
// refers to is closed by the garbage collector, and its lock is gone.
var workRootUnlock func()

// workDir makes a new folder in workRoot; name is a hint for people who look there.
func workDir(name string) (string, error) {
	root, err := workRoot()
	if err != nil {
		return "", fmt.Errorf("make a working directory: %w", err)
	}
	return os.MkdirTemp(root, strings.ReplaceAll(name, string(filepath.Separator), "_")+"-")
}
