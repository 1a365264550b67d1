package kafkatest

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// AppOptions says what instance of the Streams application to run (tests/jvm/src/StreamsApp.java).
type AppOptions struct {
	Bootstrap string            // the cluster, or the gateway before it
	Group     string            // application.id
	Name      string            // this instance; it is the client id, and the "by" header of what it writes. Default "a"
	Topology  string            // stateless (default), copy2, filter, count, join; those with a second input take Args "in2=…"
	In, Out   string            // topics, which must exist. Default Group-in and Group-out
	Threads   int               // default 1
	Guarantee string            // at_least_once (default), exactly_once_v2
	Protocol  string            // streams (default), classic
	Commit    time.Duration     // commit interval, default 500 ms
	Close     string            // default, leave, remain: the membership when it is stopped
	Config    map[string]string // further settings of the application
	Args      []string          // further arguments of the program
}

const (
	appHeapMB      = 160
	appStopTimeout = 40 * time.Second // the application's own close takes 20 s at most
)

// App is a running instance. All methods fail the test when something doesn't work.
type App struct {
	tb   testing.TB
	opts AppOptions
	proc *process
}

// StartApp starts an instance. It is killed when the test ends.
func StartApp(tb testing.TB, o AppOptions) *App {
	tb.Helper()
	NeedJava(tb)
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
	o.Threads = max(o.Threads, 1)
	if o.Commit == 0 {
		o.Commit = 500 * time.Millisecond
	}
	classes, err := compiled("src")
	if err != nil {
		tb.Fatalf("compile the Streams application: %v", err)
	}
	dir := tb.TempDir()
	args := []string{
		"bootstrap=" + o.Bootstrap, "id=" + o.Group, "name=" + o.Name, "topology=" + o.Topology, "in=" + o.In, "out=" + o.Out,
		"guarantee=" + o.Guarantee, "protocol=" + o.Protocol, "close=" + o.Close, "threads=" + strconv.Itoa(o.Threads),
		"commit=" + strconv.FormatInt(o.Commit.Milliseconds(), 10), "state=" + filepath.Join(dir, "state"),
	}
	for k, v := range o.Config {
		args = append(args, "config."+k+"="+v)
	}
	argv, err := java(V44, classes, "tools-log4j2.properties", appHeapMB, nil, "StreamsApp", append(args, o.Args...)...)
	if err != nil {
		tb.Fatal(err)
	}
	out := filepath.Join(dir, "app.log")
	logTailOnFailure(tb, "application "+o.Name+" of "+o.Group, out)
	p, err := startProcess("application "+o.Name, dir, out, nil, argv...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.kill)
	return &App{tb: tb, opts: o, proc: p}
}

// Name is the instance's name.
func (a *App) Name() string { return a.opts.Name }

// Output is everything the instance has printed: events, warnings, stack traces.
func (a *App) Output() string { return a.proc.output() }

// events are the rests of the lines "<milliseconds> KIND rest".
func (a *App) events(kind string) []string {
	var all []string
	for line := range strings.Lines(a.proc.output()) {
		_, event, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		if k, rest, _ := strings.Cut(event, " "); k == kind {
			all = append(all, rest)
		}
	}
	return all
}

func (a *App) last(kind string) string {
	if all := a.events(kind); len(all) > 0 {
		return all[len(all)-1]
	}
	return ""
}

// State is the application's state, "" before the first.
func (a *App) State() string { return a.last("STATE") }

// Tasks are the active tasks it has now, like "0_3", in order.
func (a *App) Tasks() []string { return strings.Fields(a.last("TASKS")) }

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

// Stop is SIGTERM: the application commits, leaves its group (see AppOptions.Close) and ends.
func (a *App) Stop() {
	a.tb.Helper()
	if err := a.proc.stop(appStopTimeout); err != nil {
		a.tb.Fatal(err)
	}
	if got := a.last("CLOSED"); got != "true" {
		a.tb.Errorf("application %s did not close in time: CLOSED %s", a.opts.Name, got)
	}
}

// Kill is SIGKILL.
func (a *App) Kill() { a.proc.kill() }

// Uncaught lists the exceptions that ended a stream thread.
func (a *App) Uncaught() []string { return a.events("UNCAUGHT") }
