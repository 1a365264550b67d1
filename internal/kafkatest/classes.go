package kafkatest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// compiled compiles the Java sources of a folder of tests/jvm against Kafka 4.4 and returns where the classes are. The result is kept by
// the hash of the sources.
func compiled(folder string) (string, error) {
	cp, err := jars(V44)
	if err != nil {
		return "", err
	}
	sources, err := filepath.Glob(filepath.Join(RepoDir(), "tests", "jvm", folder, "*.java"))
	if err != nil {
		return "", err
	}
	if len(sources) == 0 {
		return "", fmt.Errorf("no Java sources in tests/jvm/%s", folder)
	}
	h := sha256.New()
	for _, s := range sources {
		b, err := os.ReadFile(s)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n", filepath.Base(s), len(b))
		h.Write(b)
	}
	return cached("classes-"+V44+"-"+hex.EncodeToString(h.Sum(nil))[:12], func(dir string) error {
		argv := append([]string{"javac", "-nowarn", "--release", "17", "-cp", cp, "-d", dir}, sources...)
		out, errOut, exit, err := runTool(time.Minute, nil, argv...)
		if err != nil || exit != 0 {
			return fmt.Errorf("javac: exit %d, %w\n%s%s", exit, orNone(err), out, errOut)
		}
		return nil
	})
}

// programMax ends a Java program that hangs.
const programMax = 10 * time.Minute

// Java compiles a folder of tests/jvm against Kafka 4.4, runs a class of it to its end, with the compilers and the heap that a broker
// has, and returns what it printed. Without Java or Maven the test is skipped, in CI it fails.
func Java(tb testing.TB, folder, class string, args ...string) (stdout string) {
	tb.Helper()
	NeedJava(tb)
	classes, err := compiled(folder)
	if err != nil {
		tb.Fatal(err)
	}
	argv, err := java(V44, classes, "tools-log4j2.properties", 1024, []string{"-XX:+UseG1GC"}, class, args...)
	if err != nil {
		tb.Fatal(err)
	}
	stdout, stderr, exit, err := runTool(programMax, nil, argv...)
	if err != nil || exit != 0 {
		tb.Fatalf("%s: exit %d, %v\n%s%s", class, exit, orNone(err), stdout, stderr)
	}
	return stdout
}
