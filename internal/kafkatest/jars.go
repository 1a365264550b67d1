package kafkatest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The versions that tests name. Any other released version works with Start, Jars and Tool too.
const (
	V44  = "4.4.0" // the version whose behaviour streamkeeper has
	V391 = "3.9.1" // the newest that knows nothing of streams groups, not even their names
	V42  = "4.2.0" // the first whose clients have streams groups
	V43  = "4.3.0" // the last whose clients know nothing of topology descriptions
)

// mavenTimeout is generous: the first download is about 130 MB per version.
const mavenTimeout = 10 * time.Minute

var javaHint = "needs Java 17 (java, javac) and Maven (mvn); on Debian: apt-get install openjdk-17-jdk-headless maven"

// HasJava says whether java, javac and mvn are on the PATH, and if not, which of them is missing.
func HasJava() error {
	var lacks []string
	for _, tool := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			lacks = append(lacks, tool)
		}
	}
	if len(lacks) > 0 {
		return errors.New(strings.Join(lacks, ", ") + " not found: " + javaHint)
	}
	return nil
}

// NeedJava skips the test where Java or Maven is missing (fails it in CI), and with go test -short.
func NeedJava(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("skipped: -short, and this test starts a JVM")
	}
	if err := HasJava(); err != nil {
		missing(tb, "%v", err)
	}
}

// Jars returns a class path with Apache Kafka of that version: broker, tools, Streams, and a log4j binding. "4.2" is
// short for "4.2.0". The jars are fetched with Maven at first use. Without Java or Maven the test is skipped, in CI
// it fails.
func Jars(tb testing.TB, version string) (classpath string) {
	tb.Helper()
	NeedJava(tb)
	cp, err := jars(version)
	if err != nil {
		tb.Fatalf("fetch Apache Kafka %s: %v", version, err)
	}
	return cp
}

var versionPattern = regexp.MustCompile(`^\d+\.\d+\.\d+$`)

func fullVersion(version string) (string, error) {
	if strings.Count(version, ".") == 1 {
		version += ".0"
	}
	if !versionPattern.MatchString(version) {
		return "", fmt.Errorf("%q is not a Kafka version like 4.4.0", version)
	}
	return version, nil
}

func jars(version string) (string, error) {
	version, err := fullVersion(version)
	if err != nil {
		return "", err
	}
	dir, err := cached("jars-"+version, func(dir string) error {
		out, errOut, exit, err := runTool(mavenTimeout, nil, "mvn", "-q", "-B", "-f", filepath.Join(RepoDir(), "tests", "jvm", "pom.xml"),
			"-Dkafka.version="+version, "dependency:copy-dependencies", "-DoutputDirectory="+dir)
		if err != nil || exit != 0 {
			return fmt.Errorf("mvn: exit %d, %w\n%s", exit, orNone(err), tail(out+errOut))
		}
		found, err := filepath.Glob(filepath.Join(dir, "kafka-clients-"+version+".jar"))
		if err != nil || len(found) != 1 {
			return fmt.Errorf("mvn copied no kafka-clients-%s.jar", version)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "*"), nil
}

// orNone makes a nil error printable.
func orNone(err error) error {
	if err == nil {
		return errors.New("no further error")
	}
	return err
}

// java is the command line of a Java program of the given Kafka version: small, quick to start, logging as in the
// given file of conf/.
func java(version, classes, logConf string, heapMB int, jvm []string, class string, args ...string) ([]string, error) {
	cp, err := jars(version)
	if err != nil {
		return nil, err
	}
	if classes != "" {
		cp = classes + string(os.PathListSeparator) + cp
	}
	conf := filepath.Join(RepoDir(), "tests", "jvm", logConf)
	if len(jvm) == 0 {
		// Start-up time counts more than throughput: no second compiler, the smallest collector.
		jvm = []string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"}
	}
	argv := []string{"java", fmt.Sprintf("-Xmx%dm", heapMB), "-Djava.awt.headless=true", "-Dlog4j2.configurationFile=" + conf}
	argv = append(argv, jvm...)
	argv = append(argv, "-cp", cp, class)
	return append(argv, args...), nil
}
