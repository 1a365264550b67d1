package differential

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"streamkeeper/internal/kafkatest"
)

// oracle is Kafka's group coordinator in a Java process of its own.
type oracle struct {
	mu  sync.Mutex
	in  io.Writer
	out *bufio.Reader
	log string // its standard error
}

// answer is what the oracle says to one line. Only what we look at is decoded.
type answer struct {
	Exception   string
	Now         int64
	ResponseHex string
	Pending     bool
	Records     []logged
	Fired       []fired
	Timers      []liveTimer     // of "state"
	Log         []logged        // of "log"
	Internal    []internalTopic `json:"internalTopics"`
}

// logged is a record that was appended.
type logged struct {
	Type     int
	KeyHex   string
	ValueHex *string
}

// fired is a timer that did something.
type fired struct {
	At      int64
	Timer   string
	Records []logged
}

// liveTimer is one that is set.
type liveTimer struct {
	At    int64
	Timer string
}

type internalTopic struct {
	Name              string
	Partitions        int32
	ReplicationFactor int16
	Configs           map[string]string
}

var theOracle = sync.OnceValues(startOracle)

// needOracle starts the oracle at its first use; it serves all tests of this process, one world after the other.
func needOracle(tb testing.TB) *oracle {
	tb.Helper()
	kafkatest.NeedJava(tb)
	jars = kafkatest.Jars(tb, kafkatest.V44)
	o, err := theOracle()
	if err != nil {
		tb.Fatalf("start the oracle: %v", err)
	}
	return o
}

// jars is the class path of Kafka 4.4; set before theOracle is asked for.
var jars string

func startOracle() (*oracle, error) {
	classes, err := compileOracle()
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(kafkatest.RepoDir(), "tests", "jvm", "tools-log4j2.properties")
	cmd := exec.Command("java", "-Xmx512m", "-XX:+UseSerialGC", "--add-opens=java.base/java.util=ALL-UNNAMED",
		"-Dlog4j2.configurationFile="+conf, "-cp", classes+string(os.PathListSeparator)+jars, "ShardOracle")
	dieWithParent(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	log, err := os.CreateTemp("", "oracle-*.log")
	if err != nil {
		return nil, err
	}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	oracleProcess = cmd
	return &oracle{in: in, out: bufio.NewReaderSize(out, 1<<20), log: log.Name()}, nil
}

// oracleProcess is what TestMain ends; nil if none was started.
var oracleProcess *exec.Cmd

func TestMain(m *testing.M) {
	code := m.Run()
	if oracleProcess != nil {
		oracleProcess.Process.Kill()
		oracleProcess.Wait()
		if code == 0 {
			if o, err := theOracle(); err == nil {
				os.Remove(o.log)
			}
		}
	}
	os.Exit(code)
}

// compileOracle compiles the oracle into the cache, under a name that follows from its sources.
func compileOracle() (string, error) {
	sources, err := filepath.Glob(filepath.Join(kafkatest.RepoDir(), "tests", "jvm", "oracle", "*.java"))
	if err != nil || len(sources) == 0 {
		return "", fmt.Errorf("no sources of the oracle: %v", err)
	}
	sum := sha256.New()
	for _, s := range sources {
		text, err := os.ReadFile(s)
		if err != nil {
			return "", err
		}
		sum.Write(text)
	}
	dir := filepath.Join(kafkatest.CacheDir(), "oracle-"+hex.EncodeToString(sum.Sum(nil))[:16])
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	tmp, err := os.MkdirTemp(kafkatest.CacheDir(), "oracle.new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	out, err := exec.Command("javac", append([]string{"-nowarn", "--release", "17", "-cp", jars, "-d", tmp}, sources...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("javac: %w\n%s", err, out)
	}
	if err := os.Rename(tmp, dir); err != nil {
		if _, there := os.Stat(dir); there == nil {
			return dir, nil // another test binary was faster
		}
		return "", err
	}
	return dir, nil
}

// do sends one operation. An exception of the oracle is an error.
func (o *oracle) do(op map[string]any) (answer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	line, err := json.Marshal(op)
	if err != nil {
		return answer{}, err
	}
	if _, err := o.in.Write(append(line, '\n')); err != nil {
		return answer{}, fmt.Errorf("write to the oracle (its log: %s): %w", o.log, err)
	}
	reply, err := o.out.ReadBytes('\n')
	if err != nil {
		return answer{}, fmt.Errorf("read from the oracle (its log: %s): %w", o.log, err)
	}
	var a answer
	if err := json.Unmarshal(reply, &a); err != nil {
		return answer{}, fmt.Errorf("%w in %s", err, reply)
	}
	if a.Exception != "" {
		return a, fmt.Errorf("oracle: %s for %s", a.Exception, line)
	}
	return a, nil
}
