package kafkatest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
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
