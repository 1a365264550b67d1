package kafkatest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// gitTimeout bounds what git does: unpacking a few megabytes.
const gitTimeout = time.Minute

// OlderBinary is streamkeeper built from a former commit of the repository, kept in the cache folder. Where the history does not reach
// back that far (a shallow clone, or no repository at all) it is built from today's sources, and older is false: the test's log says so.
func OlderBinary(tb testing.TB, commit string) (bin string, older bool) {
	tb.Helper()
	if _, errOut, exit, err := runTool(gitTimeout, nil, "git", "-C", RepoDir(), "cat-file", "-e", commit+"^{commit}"); err != nil || exit != 0 {
		tb.Logf("THE OLDER VERSION IS NOT THERE: commit %s is not in the history of %s (%v %s). Both versions are built from today's sources, so nothing is shown about "+
			"what changed between them; fetch the whole history (git fetch --unshallow) for that", commit, RepoDir(), err, strings.TrimSpace(errOut))
		root, err := workRoot()
		if err != nil {
			tb.Fatal(err)
		}
		bin = filepath.Join(root, "streamkeeper-unversioned")
		if err := buildKeeper(RepoDir(), bin); err != nil {
			tb.Fatal(err)
		}
		return bin, false
	}
	dir, err := cached("streamkeeper-"+commit, func(dir string) error {
		src, err := os.MkdirTemp(dir, "src-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(src)
		archive := filepath.Join(src, "src.tar")
		if _, errOut, exit, err := runTool(gitTimeout, nil, "git", "-C", RepoDir(), "archive", "--format=tar", "-o", archive, commit); err != nil || exit != 0 {
			return fmt.Errorf("git archive %s: exit %d, %w\n%s", commit, exit, orNone(err), tail(errOut))
		}
		if _, errOut, exit, err := runTool(gitTimeout, nil, "tar", "-xf", archive, "-C", src); err != nil || exit != 0 {
			return fmt.Errorf("unpack %s: exit %d, %w\n%s", archive, exit, orNone(err), tail(errOut))
		}
		return buildKeeper(src, filepath.Join(dir, "streamkeeper"))
	})
	if err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(dir, "streamkeeper"), true
}

// buildKeeper builds cmd/streamkeeper of a source tree, without what git knows of it.
func buildKeeper(src, bin string, flags ...string) error {
	out, errOut, exit, err := runTool(keeperBuildTimeout, nil, slices.Concat([]string{"go", "build", "-C", src, "-buildvcs=false", "-o", bin}, flags, []string{"./cmd/streamkeeper"})...)
	if err != nil || exit != 0 {
		return fmt.Errorf("go build ./cmd/streamkeeper in %s: exit %d, %w\n%s%s", src, exit, orNone(err), tail(out), tail(errOut))
	}
	return nil
}

// futureBinary is keeperBinary as a version to come may be: its ownership records have a format that today's does not know.
var futureBinary = sync.OnceValues(func() (string, error) {
	root, err := workRoot()
	if err != nil {
		return "", err
	}
	source := filepath.Join(RepoDir(), "eventlog", "record.go")
	text, err := os.ReadFile(source)
	if err != nil {
		return "", err
	}
	const format = "const OwnershipFormat = "
	begin, rest, ok := strings.Cut(string(text), format)
	digits, after, whole := strings.Cut(rest, "\n")
	today, err := strconv.Atoi(digits)
	if !ok || !whole || err != nil {
		return "", fmt.Errorf("%s has no line %q and a number", source, format)
	}
	changed, overlay := filepath.Join(root, "future-record.go"), filepath.Join(root, "future-overlay.json")
	files, err := json.Marshal(map[string]map[string]string{"Replace": {source: changed}})
	if err != nil {
		return "", err
	}
	err = errors.Join(os.WriteFile(changed, []byte(fmt.Sprintf("%s%s%d\n%s", begin, format, today+1, after)), 0o644), os.WriteFile(overlay, files, 0o644))
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, "streamkeeper-future")
	return bin, buildKeeper(RepoDir(), bin, "-overlay", overlay)
})

// FutureBinary is streamkeeper as a version to come may be: it writes ownership records of a newer format, and reads today's as well.
func FutureBinary(tb testing.TB) string {
	tb.Helper()
	bin, err := futureBinary()
	if err != nil {
		tb.Fatal(err)
	}
	return bin
}

// CurrentBinary is streamkeeper built from today's sources: what a Keeper runs unless Use says otherwise.
func CurrentBinary(tb testing.TB) string {
	tb.Helper()
	bin, err := keeperBinary()
	if err != nil {
		tb.Fatal(err)
	}
	return bin
}

// skewedBinary is keeperBinary with a clock that tests can set wrong (internal/wall).
var skewedBinary = sync.OnceValues(func() (string, error) {
	root, err := workRoot()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, "streamkeeper-skewed")
	return bin, buildKeeper(RepoDir(), bin, "-tags", "skewclock")
})

// SkewClock sets the time of day of the keeper wrong by d, whole seconds, from its next look at the clock on. The first call must come
// before Start.
func (k *Keeper) SkewClock(d time.Duration) {
	k.tb.Helper()
	file := filepath.Join(k.dir, "skew")
	if !slices.Contains(k.env, "STREAMKEEPER_SKEW_FILE="+file) {
		bin, err := skewedBinary()
		if err != nil {
			k.tb.Fatal(err)
		}
		k.Use(bin)
		k.env = append(k.env, "STREAMKEEPER_SKEW_FILE="+file)
	}
	// Renamed into place, so that nobody reads half a number.
	if err := errors.Join(os.WriteFile(file+".new", []byte(strconv.Itoa(int(d.Seconds()))), 0o644), os.Rename(file+".new", file)); err != nil {
		k.tb.Fatal(err)
	}
}

// Use has the keeper run another binary from the next start on.
func (k *Keeper) Use(bin string) { k.argv[k.bin] = bin }
