package lint

import (
	"go/ast"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// arrows says which packages of the project a package may import. An entry "x/..." stands for x and everything below it.
// Dependencies point inward, from the network to the log; a cycle or a short cut shows up here as a line that has to
// be added, and that is the moment to think again. Leaves that everybody may use are in leaves.
var arrows = []struct {
	from string
	to   []string
}{
	{"eventlog/...", nil},
	{"plugin/...", []string{"plugin/..."}},
	{"projection/...", []string{"eventlog/..."}},
	{"shard/streams", []string{"eventlog", "shard/assignor", "client/explain"}},
	{"shard/offsets", []string{"eventlog"}},
	{"shard/groupconfig", []string{"eventlog", "shard/streams"}},
	{"shard/assignor", nil},
	{"shard/...", []string{"shard/...", "projection/...", "eventlog/...", "plugin/..."}},
	{"cleanup/...", []string{"shard/...", "projection/...", "eventlog/...", "plugin/..."}},
	{"client/...", []string{"client/..."}},
	{"internal/coordinator/...", []string{"shard/...", "projection/...", "eventlog/...", "plugin/...", "cleanup/..."}},
	{"internal/gateway/...", []string{"internal/coordinator/...", "internal/gateway/..."}},
	{"internal/config", []string{"shard/groupconfig"}},                            // the settings of groups
	{"internal/annex", []string{"shard", "projection", "eventlog", "plugin/..."}}, // where descriptions are kept on the cluster
	{"internal/inspect", []string{"eventlog"}},                                    // reads the log over the network, for the commands
	{"internal/admin", []string{"internal/inspect", "client/..."}},                // what the commands ask a cluster
	{"internal/embedded", []string{"internal/inspect"}},                           // the log of dev
	{"internal/backup", nil},                                                      // a file format
	{"internal/kafkatest", nil},
	{"internal/history", []string{"eventlog"}}, // judges histories, for tests
	{"tests/...", []string{"..."}},
	{"cmd/...", []string{"..."}},
}

// leaves know nothing of the project's other packages, and anybody outside the pure ones may import them.
var leaves = []string{"client/explain", "internal/limits", "internal/sensor", "internal/telemetry", "internal/wall", "internal/wire"}

// pure packages are state machines: given the same state, request and time they return the same records, on every
// machine and on replay (design decision D1).
var pure = []string{"shard/streams", "shard/offsets", "shard/assignor", "shard/groupconfig"}

// network are packages that pure ones must not import: clock-driven, random, or talking to something.
var network = []string{
	"math/rand", "math/rand/v2", "crypto/rand", "net", "net/http", "os", "os/exec", "sync", "sync/atomic", "context", "log", "log/slog",
	"github.com/twmb/franz-go/pkg/kgo", "github.com/twmb/franz-go/pkg/kadm", "github.com/cockroachdb/pebble/v2",
}

func matches(pattern, pkg string) bool {
	if pattern == "..." {
		return true
	}
	if dir, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == dir || strings.HasPrefix(pkg, dir+"/")
	}
	return pkg == pattern
}

func matchesAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, pkg) })
}

// TestImportsFollowTheArrows keeps the architecture what the folder names say it is.
func TestImportsFollowTheArrows(t *testing.T) {
	for _, f := range tree(t) {
		if f.test {
			continue // a test may build its surroundings from anything
		}
		for _, imp := range f.ast.Imports {
			path, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			to, ours := strings.CutPrefix(path, module+"/")
			if !ours || allowed(f.dir, to) {
				continue
			}
			t.Errorf("%s: %s must not import %s", at(imp), f.dir, to)
		}
	}
}

func allowed(from, to string) bool {
	if slices.Contains(leaves, from) {
		return slices.Contains(leaves, to) && to != from
	}
	if slices.Contains(leaves, to) && !slices.Contains(pure, from) {
		return true
	}
	for _, a := range arrows {
		if matches(a.from, from) {
			return matchesAny(a.to, to)
		}
	}
	return true // a package without an entry is bound by those that must not import it
}

// TestEveryPackageHasItsArrows makes a new package state what it may import.
func TestEveryPackageHasItsArrows(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range tree(t) {
		if seen[f.dir] || f.test {
			continue
		}
		seen[f.dir] = true
		known := slices.Contains(leaves, f.dir)
		for _, a := range arrows {
			known = known || matches(a.from, f.dir)
		}
		if !known {
			t.Errorf("package %s has no entry in arrows (tests/lint/imports_test.go): say what it may import", f.dir)
		}
	}
}

// TestPureStateMachines: a clock, a random number or a goroutine in a handler makes replay differ from what was.
func TestPureStateMachines(t *testing.T) {
	clock := []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTimer", "NewTicker"}
	for _, f := range tree(t) {
		if f.test || !slices.Contains(pure, f.dir) {
			continue
		}
		for _, imp := range f.ast.Imports {
			if path, _ := strconv.Unquote(imp.Path.Value); slices.Contains(network, path) {
				t.Errorf("%s: a pure package must not import %s", at(imp), path)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: a pure package must not start goroutines", at(n))
			case *ast.ChanType:
				t.Errorf("%s: a pure package has no use for channels", at(n))
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clock, n.Sel.Name) {
					t.Errorf("%s: a pure package must not call time.%s: the time is an argument", at(n), n.Sel.Name)
				}
			}
			return true
		})
	}
}
