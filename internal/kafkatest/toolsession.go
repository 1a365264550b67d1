package kafkatest

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sessionHeapMB is enough for a few dozen calls, of which each may leave an admin client behind.
const sessionHeapMB = 320

// ToolSession runs Kafka 4.4's command line tools one after the other in one JVM (tests/jvm/tools/ToolSession.java): a story with many
// calls spends its time with them and not with the starts of JVMs. It belongs to one goroutine.
type ToolSession struct {
	tb        testing.TB
	bootstrap string
	in        io.WriteCloser
	out       *bufio.Reader
	cmd       *exec.Cmd
}

// Tools starts a session. It ends with the test.
func Tools(tb testing.TB, bootstrap string) *ToolSession {
	tb.Helper()
	NeedJava(tb)
	classes, err := compiled("tools")
	if err != nil {
		tb.Fatalf("compile the session of tools: %v", err)
	}
	argv, err := java(V44, classes, "tools-log4j2.properties", sessionHeapMB, nil, "ToolSession")
	if err != nil {
		tb.Fatal(err)
	}
	s := &ToolSession{tb: tb, bootstrap: bootstrap, cmd: exec.Command(argv[0], argv[1:]...)}
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	s.out = bufio.NewReader(out)
	if err := theSpawner.start(s.cmd); err != nil {
		tb.Fatalf("start the session of tools: %v", err)
	}
	tb.Cleanup(func() {
		_ = s.in.Close()
		kill := time.AfterFunc(toolTimeout, func() { _ = s.cmd.Process.Kill() })
		defer kill.Stop()
		_ = s.cmd.Wait()
	})
	return s
}

// Run is Tool in the session. The log lines of the tool are not part of stderr.
func (s *ToolSession) Run(name string, args ...string) (stdout, stderr string, exit int) {
	s.tb.Helper()
	t, ok := tools[name]
	if !ok || t.offline {
		s.tb.Fatalf("%q is no tool for a session", name)
	}
	class, err := t.classIn(V44)
	if err != nil {
		s.tb.Fatal(err)
	}
	words := append([]string{class, "--bootstrap-server", s.bootstrap}, args...)
	for i, w := range words {
		words[i] = base64.StdEncoding.EncodeToString([]byte(w))
	}
	kill := time.AfterFunc(toolTimeout, func() { _ = s.cmd.Process.Kill() })
	defer kill.Stop()
	if _, err := fmt.Fprintln(s.in, strings.Join(words, " ")); err != nil {
		s.tb.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
	}
	line, err := s.out.ReadString('\n')
	if err != nil {
		s.tb.Fatalf("%s %s: no answer: %v", name, strings.Join(args, " "), err)
	}
	stdout, stderr, exit, err = sessionAnswer(line)
	if err != nil {
		s.tb.Fatalf("%s %s: answer %q: %v", name, strings.Join(args, " "), line, err)
	}
	return stdout, stderr, exit
}

func sessionAnswer(line string) (stdout, stderr string, exit int, err error) {
	parts := strings.Fields(line)
	if len(parts) != 3 {
		return "", "", 0, fmt.Errorf("%d words, want 3", len(parts))
	}
	if exit, err = strconv.Atoi(parts[0]); err != nil {
		return "", "", 0, err
	}
	text := func(word string) string {
		if word == "-" || err != nil {
			return ""
		}
		var b []byte
		b, err = base64.StdEncoding.DecodeString(word)
		return string(b)
	}
	return text(parts[1]), text(parts[2]), exit, err
}
