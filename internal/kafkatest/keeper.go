package kafkatest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	keeperBuildTimeout = 10 * time.Minute // from an empty build cache on a busy machine
	keeperReadyTimeout = 60 * time.Second
	keeperStopTimeout  = 45 * time.Second // a shutdown hands its shards over within a bounded time
)

// keeperBrokerIDMax is the highest broker id for which a Keeper has a port: Options.Brokers is 5 at most.
const keeperBrokerIDMax = 5

// Keeper is one streamkeeper process. All methods fail the test when something doesn't work.
type Keeper struct {
	tb      testing.TB
	name    string
	argv    []string
	bin     int    // where in argv the binary is: after the command that starts it in its own place
	dir     string // working directory
	dataDir string
	env     []string // added to the test's own environment
	listen  int      // the port; brokers are at listen+2+id, the admin address is listen+1
	proc    *process
}

// keeperBinary builds cmd/streamkeeper, once per test binary. STREAMKEEPER_RACE=1 builds it with the race detector.
var keeperBinary = sync.OnceValues(func() (string, error) {
	root, err := workRoot()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, "streamkeeper")
	argv := []string{"go", "build", "-C", RepoDir(), "-o", bin}
	if os.Getenv("STREAMKEEPER_RACE") == "1" {
		argv = append(argv, "-race")
	}
	out, errOut, exit, err := runTool(keeperBuildTimeout, nil, append(argv, "./cmd/streamkeeper")...)
	if err != nil || exit != 0 {
		return "", fmt.Errorf("go build ./cmd/streamkeeper: exit %d, %w\n%s%s", exit, orNone(err), tail(out), tail(errOut))
	}
	return bin, nil
})

// StartStreamkeeper builds streamkeeper, runs it with the arguments, whose first is the command ("serve", "dev"), and
// waits until it is ready. Addresses and a data directory are added where the arguments don't name them. It is killed
// when the test ends; the test fails if it has printed a data race or a panic.
func StartStreamkeeper(tb testing.TB, args ...string) *Keeper {
	tb.Helper()
	k := NewStreamkeeper(tb, args...)
	k.Start()
	k.WaitReady()
	return k
}

// NewStreamkeeper is StartStreamkeeper for a process that is not started yet.
func NewStreamkeeper(tb testing.TB, args ...string) *Keeper {
	tb.Helper()
	return newKeeper(tb, keeperBinary, args)
}

// AsProcess is the environment variable that makes the test binary of cmd/streamkeeper be streamkeeper itself, with the plugins for tests
// among those that --plugin knows.
const AsProcess = "STREAMKEEPER_TEST_PROCESS"

// faultyBinary is keeperBinary with the plugins for tests: they are in the test binary alone.
var faultyBinary = sync.OnceValues(func() (string, error) {
	root, err := workRoot()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, "streamkeeper-faulty")
	out, errOut, exit, err := runTool(keeperBuildTimeout, nil, "go", "test", "-C", RepoDir(), "-c", "-o", bin, "./cmd/streamkeeper")
	if err != nil || exit != 0 {
		return "", fmt.Errorf("go test -c ./cmd/streamkeeper: exit %d, %w\n%s%s", exit, orNone(err), tail(out), tail(errOut))
	}
	return bin, nil
})

// NewFaultyStreamkeeper is NewStreamkeeper with one more plugin: --plugin faulty, whose calls fail as the group id says (plugin/faulty).
// env are further variables, NAME=value.
func NewFaultyStreamkeeper(tb testing.TB, env []string, args ...string) *Keeper {
	tb.Helper()
	k := newKeeper(tb, faultyBinary, args)
	k.env = append([]string{AsProcess + "=1"}, env...)
	return k
}

// NewStreamkeeperIn is NewStreamkeeper for a process that another command starts in its own place, as "ip netns exec NAME" does.
func NewStreamkeeperIn(tb testing.TB, command []string, args ...string) *Keeper {
	tb.Helper()
	k := newKeeper(tb, keeperBinary, args)
	k.argv, k.bin = append(slices.Clone(command), k.argv...), len(command)
	return k
}

func newKeeper(tb testing.TB, binary func() (string, error), args []string) *Keeper {
	tb.Helper()
	if len(args) == 0 {
		tb.Fatal("streamkeeper needs a command: serve or dev")
	}
	bin, err := binary()
	if err != nil {
		tb.Fatal(err)
	}
	port, err := ReservePorts(3 + keeperBrokerIDMax)
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	k := &Keeper{tb: tb, name: fmt.Sprintf("streamkeeper %s (port %d)", args[0], port), dir: dir, listen: port, dataDir: filepath.Join(dir, "data")}
	if d, ok := flagValue(args, "--data-dir"); ok {
		k.dataDir = d
	}
	k.argv = append([]string{bin}, args...)
	for _, f := range [][2]string{
		{"--listen", fmt.Sprintf("127.0.0.1:%d", port)},
		{"--admin-listen", fmt.Sprintf("127.0.0.1:%d", port+1)},
		{"--broker-port-base", fmt.Sprint(port + 2)},
		{"--data-dir", k.dataDir},
	} {
		if _, ok := flagValue(args, f[0]); !ok {
			k.argv = append(k.argv, f[0], f[1])
		}
	}
	logTailOnFailure(tb, k.name, k.logFile())
	tb.Cleanup(func() {
		if k.proc != nil {
			k.proc.kill()
		}
		k.checkLog()
	})
	return k
}

// flagValue finds "--name value" or "--name=value".
func flagValue(args []string, name string) (string, bool) {
	for i, a := range args {
		if v, ok := strings.CutPrefix(a, name+"="); ok {
			return v, true
		}
		if a == name && i+1 < len(args) {
			return args[i+1], true
		}
	}
	return "", false
}

func (k *Keeper) logFile() string { return filepath.Join(k.dir, "streamkeeper.log") }

// checkLog looks for what no test may overlook.
func (k *Keeper) checkLog() {
	b, err := os.ReadFile(k.logFile())
	if err != nil {
		return // never started
	}
	for _, bad := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
		// At the beginning of a line: a panic of a plugin that was caught is within one, in the log.
		if i := strings.Index("\n"+string(b), "\n"+bad); i >= 0 {
			k.tb.Errorf("%s printed %q:\n%s", k.name, bad, tail(string(b[i:])))
		}
	}
}

// Start starts the process and does not wait.
func (k *Keeper) Start() {
	k.tb.Helper()
	p, err := startProcess(k.name, k.dir, k.logFile(), k.env, k.argv...)
	if err != nil {
		k.tb.Fatal(err)
	}
	k.proc = p
}

// WaitReady waits until /readyz of the admin address answers 200.
func (k *Keeper) WaitReady() {
	k.tb.Helper()
	if err := k.proc.waitFor("/readyz answers 200", keeperReadyTimeout, k.ready); err != nil {
		k.tb.Fatal(err)
	}
}

// Ready is nil when /readyz answers 200, else why not.
func (k *Keeper) Ready() error {
	_, err := k.ready()
	return err
}

func (k *Keeper) ready() (bool, error) {
	status, body, err := k.TryGet("/readyz")
	if err != nil {
		return false, err
	}
	if status != http.StatusOK {
		return false, fmt.Errorf("/readyz answers %d: %s", status, body)
	}
	return true, nil
}

// adminBodyMax bounds what is read from the admin address; metrics of a test are far smaller.
const adminBodyMax = 4 << 20

// Get fetches a path of the admin address, like "/metrics".
func (k *Keeper) Get(path string) (status int, body string) {
	k.tb.Helper()
	status, body, err := k.TryGet(path)
	if err != nil {
		k.tb.Fatal(err)
	}
	return status, body
}

// TryGet is Get where the replica may not answer in time: 5 seconds.
func (k *Keeper) TryGet(path string) (status int, body string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+k.Admin()+path, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, adminBodyMax))
	return resp.StatusCode, strings.TrimSpace(string(b)), err
}

// Bootstrap is the address that applications bootstrap to.
func (k *Keeper) Bootstrap() string {
	a, _ := flagValue(k.argv, "--listen")
	return a
}

// Admin is the address of health, metrics and console.
func (k *Keeper) Admin() string {
	a, _ := flagValue(k.argv, "--admin-listen")
	return a
}

// DataDir is its data directory.
func (k *Keeper) DataDir() string { return k.dataDir }

// LogTopic is the name of its record log.
func (k *Keeper) LogTopic() string {
	if topic, ok := flagValue(k.argv, "--log-topic"); ok {
		return topic
	}
	return "__streams_groups"
}

// Pid is its process id.
func (k *Keeper) Pid() int { return k.proc.pid() }

// Running says whether the process exists.
func (k *Keeper) Running() bool { return k.proc != nil && k.proc.running() }

// Output is what it has printed since its last start.
func (k *Keeper) Output() string { return k.proc.output() }

// Stop is SIGTERM, and waits until the process has ended with status 0.
func (k *Keeper) Stop() {
	k.tb.Helper()
	if err := k.proc.stop(keeperStopTimeout); err != nil {
		k.tb.Fatal(err)
	}
	if s := k.proc.exit(); s != "exit status 0" {
		k.tb.Errorf("%s ended with %s after SIGTERM", k.name, s)
	}
}

// WaitExit waits until the process ends by itself, and returns its exit code.
func (k *Keeper) WaitExit(timeout time.Duration) int {
	k.tb.Helper()
	select {
	case <-k.proc.done:
		return k.proc.cmd.ProcessState.ExitCode()
	case <-time.After(timeout):
		k.tb.Fatalf("%s still runs after %s", k.name, timeout)
		return -1
	}
}

// Kill is SIGKILL, and waits for the end.
func (k *Keeper) Kill() { k.proc.kill() }

// Pause is SIGSTOP: connections stay open and nothing is answered. When it returns the process has stopped.
func (k *Keeper) Pause() { k.proc.pause() }

// Resume, SIGCONT, lets a paused process go on.
func (k *Keeper) Resume() { k.proc.signal(syscall.SIGCONT) }

// Restart starts it again with the same arguments, addresses and data, after ending it (SIGKILL) if it still runs, and
// waits until it is ready.
func (k *Keeper) Restart() {
	k.tb.Helper()
	k.proc.kill()
	k.Start()
	k.WaitReady()
}

// Set gives a flag another value from the next start on.
func (k *Keeper) Set(flag, value string) {
	for i, a := range k.argv {
		if strings.HasPrefix(a, flag+"=") {
			k.argv[i] = flag + "=" + value
			return
		}
		if a == flag && i+1 < len(k.argv) {
			k.argv[i+1] = value
			return
		}
	}
	k.argv = append(k.argv, flag, value)
}

// keeperCommandTimeout bounds commands that end by themselves.
const keeperCommandTimeout = time.Minute

// Streamkeeper runs a command of the binary that ends by itself.
func Streamkeeper(tb testing.TB, args ...string) (stdout, stderr string, exit int) {
	tb.Helper()
	bin, err := keeperBinary()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, stderr, exit, err = runTool(keeperCommandTimeout, nil, append([]string{bin}, args...)...)
	if err != nil {
		tb.Fatalf("streamkeeper %s: %v\n%s%s", strings.Join(args, " "), err, stdout, stderr)
	}
	return stdout, stderr, exit
}
