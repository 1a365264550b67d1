package kafkatest

import (
	"io"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// AppHost is one JVM for many instances, of one application or of several: where an instance is not to be killed, that saves the
// start of a JVM for each.
type AppHost struct {
	tb   testing.TB
	proc *process
}

// StartAppHost starts a JVM with the Kafka Streams of a version and no instances. It is killed when the test ends.
func StartAppHost(tb testing.TB, version string) *AppHost {
	tb.Helper()
	NeedJava(tb)
	return &AppHost{tb: tb, proc: startJVM(tb, "applications with Kafka Streams "+version, version, hostHeapMB, tb.TempDir(), "host")}
}

// StartAppHostIn is StartAppHost for a JVM that another command starts in its own place, as "ip netns exec NAME" does.
func StartAppHostIn(tb testing.TB, command []string, version string) *AppHost {
	tb.Helper()
	NeedJava(tb)
	return &AppHost{tb: tb, proc: startJVMIn(tb, command, "applications with Kafka Streams "+version, version, hostHeapMB, tb.TempDir(), "host")}
}

// Start starts an instance in the host, which must not have one of that group and name (a stopped one is replaced). It ends with the
// test tb, which may be a subtest of the host's.
func (h *AppHost) Start(tb testing.TB, o AppOptions) *App {
	tb.Helper()
	o = o.withDefaults(tb)
	a := &App{tb: tb, opts: o, proc: h.proc, host: true, began: len(h.proc.output())}
	h.write(tb, append([]string{"start"}, o.args()...)...)
	a.wait("starts", func() bool { return a.State() != "" || a.last("REFUSED") != "" })
	if refused := a.last("REFUSED"); refused != "" {
		tb.Fatalf("start %s: %s", o.key(), refused)
	}
	tb.Cleanup(func() {
		if a.last("CLOSED") == "" && h.proc.running() {
			h.write(tb, "stop", o.key())
		}
	})
	return a
}

// write sends a command to the host.
func (h *AppHost) write(tb testing.TB, words ...string) {
	tb.Helper()
	if _, err := io.WriteString(h.proc.stdin, strings.Join(words, "\t")+"\n"); err != nil {
		tb.Fatalf("tell the host of applications to %s: %v\n%s", words[0], err, tail(h.proc.output()))
	}
}

func (a *App) command(word string, more ...string) {
	a.tb.Helper()
	if !a.host {
		a.tb.Fatalf("instance %s has a JVM of its own and takes no commands", a.opts.Name)
	}
	(&AppHost{tb: a.tb, proc: a.proc}).write(a.tb, append([]string{word, a.opts.key()}, more...)...)
}

// Slow makes each record take so many milliseconds from now on.
func (a *App) Slow(millis int) {
	a.tb.Helper()
	said := len(a.Events("SLOW"))
	a.command("slow", strconv.Itoa(millis))
	a.wait("is slow", func() bool { return len(a.Events("SLOW")) > said })
}

// Get asks the instance for a key of a store: the application.server of the instance that has it, and its value if that is this one.
func (a *App) Get(store, key string) (host, value string) {
	a.tb.Helper()
	asked := len(a.Events("VALUE " + store + " " + key))
	a.command("get", store, key)
	a.wait("answers", func() bool { return len(a.Events("VALUE "+store+" "+key)) > asked })
	return a.last("HOST " + store + " " + key), a.last("VALUE " + store + " " + key)
}

// Lag asks how many records its stores, those of standby tasks included, are behind their changelogs.
func (a *App) Lag() int {
	a.tb.Helper()
	asked := len(a.Events("LAG"))
	a.command("lag")
	a.wait("says its lag", func() bool { return len(a.Events("LAG")) > asked })
	n, err := strconv.Atoi(a.last("LAG"))
	if err != nil {
		a.tb.Fatal(err)
	}
	return n
}

// Restored is how many records it has read from changelogs to restore stores of active tasks, so far.
func (a *App) Restored() (records int) {
	for _, e := range a.Events("RESTORED") { // store, partition, records
		f := strings.Fields(e)
		n, _ := strconv.Atoi(f[len(f)-1])
		records += n
	}
	return records
}

// Kill is SIGKILL for the host with all its instances, and waits for the end.
func (h *AppHost) Kill() { h.proc.kill() }

// Running says whether the process exists.
func (h *AppHost) Running() bool { return h.proc.running() }

// OutputSince is what the JVM has printed from a place on, in bytes, and the place where that ends.
func (h *AppHost) OutputSince(from int) (text string, to int) {
	b := h.proc.outputFrom(from)
	return string(b), from + len(b)
}

// Output is everything that the JVM has printed: events of all instances, warnings, stack traces.
func (h *AppHost) Output() string { return h.proc.output() }

// Pause is SIGSTOP for all instances of the host: they say nothing any more, and their connections stay open.
func (h *AppHost) Pause() { h.proc.pause() }

// Resume lets a paused host go on.
func (h *AppHost) Resume() { h.proc.signal(syscall.SIGCONT) }
