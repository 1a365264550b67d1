package kafkatest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// AppOptions says what instance of the Streams application to run (tests/jvm/src/AppInstance.java).
type AppOptions struct {
	Bootstrap string            // the cluster, or the gateway before it
	Version   string            // of Kafka Streams, default V44; in a host its own
	Group     string            // application.id
	Name      string            // this instance; it is the client id, and the "by" header of what it writes. Default "a"
	Topology  string            // see Topologies.java, default stateless; some take Args "in2=…" or "parts=…"
	In, Out   string            // topics, which must exist. Default Group-in and Group-out
	State     string            // state directory, default a new one. With the same one an instance is the same process to its group
	Threads   int               // default 1
	Guarantee string            // at_least_once (default), exactly_once_v2
	Protocol  string            // streams (default), classic
	Commit    time.Duration     // commit interval, default 500 ms
	Close     string            // default, leave, remain: the membership when it is stopped
	Uncaught  string            // end (default), replace: what an uncaught exception of a stream thread does to the instance
	Config    map[string]string // further settings of the application
	Args      []string          // further arguments of the program
}

const (
	appHeapMB      = 160
	hostHeapMB     = 640              // for some twenty instances
	appStopTimeout = 40 * time.Second // the application's own close takes 20 s at most
)

// App is an instance of an application, in a JVM of its own or in that of a host. All methods fail the test when something
// doesn't work.
type App struct {
	tb   testing.TB
	opts AppOptions
	proc *process
	host bool // the process has other instances, too
	// began is where its events begin in the output of a host: there may have been a namesake before it.
	began int
}

// StartApp starts an instance in a JVM of its own. It is killed when the test ends.
func StartApp(tb testing.TB, o AppOptions) *App {
	tb.Helper()
	NeedJava(tb)
	o = o.withDefaults(tb)
	if o.Version == "" {
		o.Version = V44
	}
	dir := tb.TempDir()
	p := startJVM(tb, "application "+o.Name+" of "+o.Group, o.Version, appHeapMB, dir, o.args()...)
	return &App{tb: tb, opts: o, proc: p}
}

// startJVM runs StreamsApp with the Kafka Streams of a version. It is killed when the test ends.
func startJVM(tb testing.TB, name, version string, heapMB int, dir string, args ...string) *process {
	tb.Helper()
	return startJVMIn(tb, nil, name, version, heapMB, dir, args...)
}

// startJVMIn is startJVM in the place of another command; nil for none.
func startJVMIn(tb testing.TB, command []string, name, version string, heapMB int, dir string, args ...string) *process {
	tb.Helper()
	classes, err := compiled("src")
	if err != nil {
		tb.Fatalf("compile the Streams application: %v", err)
	}
	argv, err := java(version, classes, "tools-log4j2.properties", heapMB, nil, "StreamsApp", args...)
	if err != nil {
		tb.Fatal(err)
	}
	out := filepath.Join(dir, "app.log")
	logTailOnFailure(tb, name, out)
	p, err := startProcessWithInput(name, dir, out, nil, append(slices.Clone(command), argv...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.kill)
	return p
}

func (o AppOptions) withDefaults(tb testing.TB) AppOptions {
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	def(&o.Name, "a")
	def(&o.Topology, "stateless")
	def(&o.In, o.Group+"-in")
	def(&o.Out, o.Group+"-out")
	def(&o.Guarantee, "at_least_once")
	def(&o.Protocol, "streams")
	def(&o.Close, "default")
	def(&o.Uncaught, "end")
	if o.State == "" {
		o.State = filepath.Join(tb.TempDir(), "state")
	}
	o.Threads = max(o.Threads, 1)
	if o.Commit == 0 {
		o.Commit = 500 * time.Millisecond
	}
	return o
}

// args are the words of AppInstance.java.
func (o AppOptions) args() []string {
	args := []string{
		"bootstrap=" + o.Bootstrap, "id=" + o.Group, "name=" + o.Name, "topology=" + o.Topology, "in=" + o.In, "out=" + o.Out,
		"guarantee=" + o.Guarantee, "protocol=" + o.Protocol, "close=" + o.Close, "uncaught=" + o.Uncaught, "threads=" + strconv.Itoa(o.Threads),
		"commit=" + strconv.FormatInt(o.Commit.Milliseconds(), 10), "state=" + o.State,
	}
	for k, v := range o.Config {
		args = append(args, "config."+k+"="+v)
	}
	return append(args, o.Args...)
}

// Name is the instance's name.
func (a *App) Name() string { return a.opts.Name }

// Options are what the instance was started with, for one that is to take its place.
func (a *App) Options() AppOptions { return a.opts }

// Pid is the process id of its JVM.
func (a *App) Pid() int { return a.proc.pid() }

// Output is everything its JVM has printed: events, warnings, stack traces.
func (a *App) Output() string { return a.proc.output() }

// Events are the rests of the lines "<milliseconds> group/name KIND rest" of the instance, in order.
func (a *App) Events(kind string) []string {
	var all []string
	for _, e := range a.proc.eventsOf(a.opts.key(), kind, a.began) {
		all = append(all, e.rest)
	}
	return all
}

func (o AppOptions) key() string { return o.Group + "/" + o.Name }

func (a *App) last(kind string) string {
	if all := a.proc.eventsOf(a.opts.key(), kind, a.began); len(all) > 0 {
		return all[len(all)-1].rest
	}
	return ""
}

// State is the application's state, "" before the first.
func (a *App) State() string { return a.last("STATE") }

// Tasks are the active tasks it has now, like "0_3", in order.
func (a *App) Tasks() []string { return strings.Fields(a.last("TASKS")) }

// Standbys are the standby tasks it has now, in order.
func (a *App) Standbys() []string { return strings.Fields(a.last("STANDBYS")) }

// Count is the number of records it has processed.
func (a *App) Count() int {
	n, _ := strconv.Atoi(a.last("COUNT")) // 0 before the first
	return n
}

// Running says whether the process exists.
func (a *App) Running() bool { return a.proc.running() }

// WaitState waits until the application is in the state, for a minute at most.
func (a *App) WaitState(state string) {
	a.tb.Helper()
	a.wait("state "+state, func() bool { return a.State() == state })
}

// WaitPassed waits until the application has been in the state, for a minute and a half at most: it may be past it by the next look.
func (a *App) WaitPassed(state string) {
	a.tb.Helper()
	a.wait("has been in state "+state, func() bool { return slices.Contains(a.Events("STATE"), state) })
}

// WaitTasks waits until it is RUNNING with exactly n active tasks, and returns them.
func (a *App) WaitTasks(n int) []string {
	a.tb.Helper()
	a.wait(fmt.Sprintf("RUNNING with %d tasks", n), func() bool { return a.State() == "RUNNING" && len(a.Tasks()) == n })
	return a.Tasks()
}

// WaitCount waits until it has processed at least n records.
func (a *App) WaitCount(n int) {
	a.tb.Helper()
	a.wait(fmt.Sprintf("%d records", n), func() bool { return a.Count() >= n })
}

// WaitOutput waits until it has printed the text.
func (a *App) WaitOutput(text string) {
	a.tb.Helper()
	a.wait(fmt.Sprintf("prints %q", text), func() bool { return strings.Contains(a.Output(), text) })
}

// appWait is what an application needs at worst: a JVM start on a busy machine and two session time-outs.
const appWait = 90 * time.Second

func (a *App) wait(what string, cond func() bool) {
	a.tb.Helper()
	if err := a.proc.waitFor(what, appWait, func() (bool, error) { return cond(), nil }); err != nil {
		a.tb.Fatal(err)
	}
}

// Stop closes the instance: it commits, leaves its group (see AppOptions.Close) and ends.
func (a *App) Stop() {
	a.tb.Helper()
	if a.host {
		a.command("stop")
		a.wait("CLOSED", func() bool { return a.last("CLOSED") != "" })
	} else if err := a.proc.stop(appStopTimeout); err != nil {
		a.tb.Fatal(err)
	}
	if got := a.last("CLOSED"); got != "true" {
		a.tb.Errorf("application %s did not close in time: CLOSED %s", a.opts.Name, got)
	}
}

// Kill is SIGKILL. It is only for an instance with a JVM of its own, as Pause and Resume are.
func (a *App) Kill() { a.alone(); a.proc.kill() }

// Pause is SIGSTOP: it says nothing any more, and its connections stay open.
func (a *App) Pause() { a.alone(); a.proc.pause() }

// Resume lets a paused instance go on.
func (a *App) Resume() { a.alone(); a.proc.signal(syscall.SIGCONT) }

func (a *App) alone() {
	a.tb.Helper()
	if a.host {
		a.tb.Fatalf("instance %s shares its JVM with others", a.opts.Name)
	}
}

// Uncaught lists the exceptions that ended a stream thread.
func (a *App) Uncaught() []string { return a.Events("UNCAUGHT") }
