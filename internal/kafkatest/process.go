package kafkatest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// pollInterval is how often output files and other processes are looked at. Nothing tells us when another process
// has changed, so waiting for one is always a loop.
const pollInterval = 25 * time.Millisecond

// shownOnFailure is how much of a process's output a failed test prints; the rest is in the file.
const shownOnFailure = 6000

// process is one run of a child process. Output and errors go to one file, appended over restarts.
type process struct {
	name    string
	outFile string
	cmd     *exec.Cmd
	began   int64          // size of the file when this run began
	stdin   io.WriteCloser // nil without input
	done    chan struct{}
	mu      sync.Mutex
	waitErr error
	events  events // of applications
}

// startProcess runs argv with env added to the test's own environment. dir is its working directory, outFile where
// its output is appended.
func startProcess(name, dir, outFile string, env []string, argv ...string) (*process, error) {
	return start(false, name, dir, outFile, env, argv...)
}

// startProcessWithInput is startProcess with a standard input that the test writes to.
func startProcessWithInput(name, dir, outFile string, env []string, argv ...string) (*process, error) {
	return start(true, name, dir, outFile, env, argv...)
}

func start(input bool, name, dir, outFile string, env []string, argv ...string) (*process, error) {
	f, err := os.OpenFile(outFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, f, f
	cmd.Env = append(os.Environ(), env...)
	p := &process{name: name, outFile: outFile, cmd: cmd, began: st.Size(), done: make(chan struct{})}
	if input {
		if p.stdin, err = cmd.StdinPipe(); err != nil {
			return nil, err
		}
	}
	if err := theSpawner.start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.waitErr = err
		p.mu.Unlock()
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// signal does nothing when the process has ended.
func (p *process) signal(s syscall.Signal) {
	if p.running() {
		_ = p.cmd.Process.Signal(s)
	}
}

// kill is SIGKILL, and waits until the process is gone.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// pause is SIGSTOP, and waits until no thread of the process runs any more, where the system tells.
func (p *process) pause() {
	p.signal(syscall.SIGSTOP)
	for p.running() && threadsRun(p.pid()) {
		time.Sleep(time.Millisecond) // the kernel stops the threads one by one and tells nobody when it is done
	}
}

// threadsRun says whether a thread of the process is in another state than stopped (T, or t for traced).
func threadsRun(pid int) bool {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false
	}
	for _, f := range stats {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // that thread is gone
		}
		// "pid (name) state …", where the name may hold anything
		if i := bytes.LastIndexByte(b, ')'); i >= 0 && i+2 < len(b) && b[i+2] != 'T' && b[i+2] != 't' {
			return true
		}
	}
	return false
}

// stop is SIGTERM, and SIGKILL with an error when the process is still there after the time-out.
func (p *process) stop(timeout time.Duration) error {
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGCONT) // a process that a test has paused could not end otherwise
	select {
	case <-p.done:
		return nil
	case <-time.After(timeout):
		p.kill()
		return fmt.Errorf("%s did not end within %s of SIGTERM and was killed", p.name, timeout)
	}
}

// exit describes how the process ended, for messages.
func (p *process) exit() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waitErr == nil {
		return "exit status 0"
	}
	return p.waitErr.Error()
}

// output is everything this run has printed so far.
func (p *process) output() string {
	b, err := os.ReadFile(p.outFile)
	if err != nil {
		return "(" + err.Error() + ")"
	}
	if int64(len(b)) < p.began {
		return ""
	}
	return string(b[p.began:])
}

// waitFor waits until cond holds or the process ends.
func (p *process) waitFor(what string, timeout time.Duration, cond func() (bool, error)) error {
	deadline := time.Now().Add(timeout)
	for {
		ok, err := cond()
		if ok {
			return nil
		}
		if !p.running() {
			return fmt.Errorf("%s ended (%s) while waiting for it: %s\n%s", p.name, p.exit(), what, tail(p.output()))
		}
		if time.Now().After(deadline) {
			if err != nil {
				return fmt.Errorf("%s: %s: not within %s: %w", p.name, what, timeout, err)
			}
			return fmt.Errorf("%s: %s: not within %s\n%s", p.name, what, timeout, tail(p.output()))
		}
		time.Sleep(pollInterval) // see pollInterval
	}
}

// tail is the end of an output. A client whose broker is away says so many times a second; that is left out.
func tail(s string) string {
	var kept strings.Builder
	left := 0
	for line := range strings.Lines(s) {
		if strings.Contains(line, "could not be established. Node may not be available") || strings.HasSuffix(line, "disconnected (org.apache.kafka.clients.NetworkClient)\n") {
			left++
			continue
		}
		kept.WriteString(line)
	}
	if s = kept.String(); left > 0 {
		s += fmt.Sprintf("(%d lines about connections that could not be established are left out)\n", left)
	}
	if len(s) <= shownOnFailure {
		return s
	}
	s = s[len(s)-shownOnFailure:]
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		s = s[i+1:]
	}
	return "…\n" + s
}

// logTailOnFailure prints the end of a file when the test fails, and keeps the whole file in the cache folder: the
// working directories of a test are gone when somebody comes to look.
func logTailOnFailure(tb testing.TB, name, file string) {
	tb.Cleanup(func() {
		if !tb.Failed() {
			return
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return // it was never started
		}
		kept := filepath.Join(CacheDir(), "failed", fileName(tb.Name()), fileName(name)+keptBefore.next(tb.Name()+"/"+name)+".log")
		err = os.MkdirAll(filepath.Dir(kept), 0o755)
		if err == nil {
			err = os.WriteFile(kept, b, 0o644)
		}
		if err != nil {
			kept = err.Error()
		}
		tb.Logf("end of the output of %s (all of it: %s):\n%s", name, kept, tail(string(b)))
	})
}

// keptBefore counts the files of one name: several processes of a test may have the same.
var keptBefore counts

type counts struct {
	mu sync.Mutex
	of map[string]int
}

// next is "" for the first of a name, then "-2" and so on.
func (c *counts) next(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[name]++
	if n := c.of[name]; n > 1 {
		return fmt.Sprintf("-%d", n)
	}
	return ""
}

// fileName makes a name of a file of any text.
func fileName(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, s)
}

// runTool runs a command to its end. The exit code is -1 when it could not be started or was killed.
func runTool(timeout time.Duration, env []string, argv ...string) (stdout, stderr string, exit int, err error) {
	var out, errOut bytes.Buffer
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.Env = append(os.Environ(), env...)
	if err := theSpawner.start(cmd); err != nil {
		return "", "", -1, fmt.Errorf("start %s: %w", filepath.Base(argv[0]), err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err = <-done:
	case <-time.After(timeout):
		_ = cmd.Process.Kill()
		<-done
		return out.String(), errOut.String(), -1, fmt.Errorf("still running after %s", timeout)
	}
	var ee *exec.ExitError
	if errors.As(err, &ee) {
		err = nil
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode(), err
}
