package kafkatest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// TestFetch downloads and compiles what tests need. The Makefile runs it first.
func TestFetch(t *testing.T) {
	for _, v := range []string{V44, V43, V42, V391} {
		cp := Jars(t, v)
		if _, err := os.Stat(filepath.Join(filepath.Dir(cp), "kafka_2.13-"+v+".jar")); err != nil {
			t.Error(err)
		}
	}
	if _, err := compiled("src"); err != nil {
		t.Error(err)
	}
}

// TestStreamsGroupsOnlyWhereAskedFor joins a streams group by hand. Kafka 3.9 doesn't know the request; 4.4 offers it
// in ApiVersions even where the protocol is off, and refuses it then.
func TestStreamsGroupsOnlyWhereAskedFor(t *testing.T) {
	join := func(t *testing.T, c *Cluster) (int16, error) {
		cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		req := Member{Group: "g", ID: "AAAAAAAAAAAAAAAAAAAAAA", Topic: "in"}.Heartbeat()
		deadline := time.Now().Add(30 * time.Second)
		for {
			resp, err := cl.Broker(1).Request(t.Context(), req)
			if err != nil {
				return 0, err
			}
			code := resp.(*kmsg.StreamsGroupHeartbeatResponse).ErrorCode
			if (code != kerr.CoordinatorNotAvailable.Code && code != kerr.CoordinatorLoadInProgress.Code && code != kerr.NotCoordinator.Code) || time.Now().After(deadline) {
				return code, nil
			}
			// the coordinator's topic is made at the first look-up, and loaded
			find := kmsg.NewPtrFindCoordinatorRequest()
			find.CoordinatorKeys = []string{"g"}
			if _, err := cl.Request(t.Context(), find); err != nil {
				return 0, err
			}
			time.Sleep(pollInterval) // nobody tells us when the coordinator is loaded
		}
	}
	for _, tc := range []struct {
		o    Options
		code int16
		err  string
	}{
		{o: Options{Version: V391}, err: "too old"},
		{o: Options{}, code: kerr.UnsupportedVersion.Code},
		{o: Options{Streams: true}, code: 0},
	} {
		t.Run(fmt.Sprintf("%s streams=%v", tc.o.Version, tc.o.Streams), func(t *testing.T) {
			code, err := join(t, Start(t, tc.o))
			if code != tc.code || (err == nil) != (tc.err == "") || (err != nil && !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("joining a streams group: code %d, %v; want code %d, error %q", code, err, tc.code, tc.err)
			}
		})
	}
}

func TestThreeBrokersOutliveOne(t *testing.T) {
	c := Start(t, Options{Brokers: 3})
	_, errOut, exit := Tool(t, c.Bootstrap(), "kafka-topics", "--create", "--topic", "t", "--partitions", "3")
	if exit != 0 {
		t.Fatal(errOut)
	}
	c.Kill(2)
	out, errOut, exit := Tool(t, c.Addr(1), "kafka-topics", "--describe", "--topic", "t")
	if exit != 0 || strings.Count(out, "Replicas: ") != 3 {
		t.Fatalf("exit %d\n%s%s", exit, out, errOut)
	}
	c.Restart(2)
	c.Stop(3)
	out, errOut, exit = Tool(t, c.Addr(2), "kafka-topics", "--describe", "--topic", "t", "--unavailable-partitions")
	if exit != 0 || out != "" {
		t.Fatalf("partitions without a leader after broker 3 was stopped, exit %d\n%s%s", exit, out, errOut)
	}
	if _, err := os.Stat(filepath.Join(c.DataDir(1), "t-0")); err != nil {
		t.Errorf("DataDir is no folder of partitions: %v", err)
	}
}

func TestUnknownVersionIsAClearError(t *testing.T) {
	if _, err := jars("4"); err == nil || !strings.Contains(err.Error(), `"4" is not a Kafka version`) {
		t.Errorf("got %v", err)
	}
}

func TestBootstrapIsAKafka(t *testing.T) {
	b := Bootstrap(t)
	if out, errOut, exit := Tool(t, b, "kafka-topics", "--list"); exit != 0 {
		t.Fatalf("exit %d\n%s%s", exit, out, errOut)
	}
	if again := Bootstrap(t); again != b {
		t.Errorf("a second call started another cluster: %s and %s", b, again)
	}
}

// TestOthersLeaveOurFolderAlone: another test binary removes the working folders of the dead, and a garbage
// collection here must not make us look dead.
func TestOthersLeaveOurFolderAlone(t *testing.T) {
	dir, err := workDir("x")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		runtime.GC()
	}
	unlock, ok, err := tryLockFile(filepath.Join(filepath.Dir(dir), "alive"))
	if err != nil {
		t.Fatal(err)
	}
	if ok {
		unlock()
		t.Errorf("%s looks as if this process were dead", filepath.Dir(dir))
	}
}
