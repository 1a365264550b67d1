package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"streamkeeper/internal/kafkatest"
)

// dumpLog prints the group's partition of the record log with kafka-dump-log, from the broker's disk (the embedded
// log: from the segment files that streamkeeper log writes), and compares it with what Kafka's own coordinator left
// after the same life: per key, the same values in the same order.
func dumpLog(t *testing.T, p *place, group string) {
	dir := ""
	var n int32
	if p.cluster != nil {
		dir = p.cluster.DataDir(1)
		n = int32(len(kafkatest.EndOffsets(t, p.cluster.Bootstrap(), p.logTopic)))
	} else {
		dir = t.TempDir()
		if out, errOut, exit := kafkatest.Streamkeeper(t, "log", "--bootstrap-servers", p.streams, "--segments", dir); exit != 0 {
			t.Fatalf("streamkeeper log --segments: exit %d\n%s%s", exit, out, errOut)
		}
		n = int32(len(kafkatest.EndOffsets(t, p.streams, p.logTopic)))
	}
	partition := partitionOf(group, n)
	files, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("%s-%d", p.logTopic, partition), "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no segment files of partition %d of %s in %s (%v)", partition, p.logTopic, dir, err)
	}
	out, errOut, exit := kafkatest.Tool(t, "", "kafka-dump-log", "--offsets-decoder", "--print-data-log", "--files", strings.Join(files, ","))
	if exit != 0 {
		t.Fatalf("kafka-dump-log: exit %d\n%s%s", exit, out, errOut)
	}
	golden, err := os.ReadFile("testdata/dump-log-stateless.txt")
	if err != nil {
		t.Fatal(err)
	}
	got, want := dumped(t, out), dumped(t, string(golden))
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if !slices.Equal(got[key], want[key]) {
			t.Errorf("%s\n got\n  %s\nwant\n  %s", key, strings.Join(got[key], "\n  "), strings.Join(want[key], "\n  "))
		}
		delete(got, key)
	}
	for key, values := range got {
		t.Errorf("%s is in the log, and Kafka wrote no such record:\n  %s", key, strings.Join(values, "\n  "))
	}
	if strings.Contains(out, "isvalid: false") {
		t.Errorf("a batch is not valid:\n%s", out)
	}
}

// partitionOf is where Kafka keeps a group: Java's hash of its name (ASCII here), without the sign, modulo n.
func partitionOf(group string, n int32) int32 {
	var h int32
	for _, c := range []byte(group) {
		h = 31*h + int32(c)
	}
	return int32(max(int64(h), -int64(h)) & 0x7fffffff % int64(n))
}

var (
	dumpRecord = regexp.MustCompile(`(?m)^\| offset: .* key: (\{"type":"\d+","data":\{.*?\}\}) payload: (.*)$`)
	dumpMember = regexp.MustCompile(`"memberId":"([A-Za-z0-9_-]{22})"`)
	dumpMasks  = []struct {
		pattern *regexp.Regexp
		with    string
	}{
		{regexp.MustCompile(`"processId":"[^"]*"`), `"processId":"…"`},
		{regexp.MustCompile(`"metadataHash":-?\d+`), `"metadataHash":…`}, // of topic ids, among other things
		{regexp.MustCompile(`"topicId":"[^"]*"`), `"topicId":"…"`},
		{regexp.MustCompile(`"(commit|assignment)Timestamp":\d+`), `"${1}Timestamp":…`},
		{regexp.MustCompile(`"metadata":"[^"]*"`), `"metadata":"…"`}, // Streams puts its partition time there
	}
)

// dumped are the values per key in log order, with what differs in every run masked. Members get the names of their
// clients. Of consecutive offset commits only the last counts: how many there are is a question of time.
func dumped(t *testing.T, dump string) map[string][]string {
	t.Helper()
	records := dumpRecord.FindAllStringSubmatch(dump, -1)
	if len(records) == 0 {
		t.Fatalf("no record was decoded:\n%s", dump)
	}
	names := map[string]string{}
	client := regexp.MustCompile(`"clientId":"([^"]*)"`)
	for _, r := range records {
		if c := client.FindStringSubmatch(r[2]); c != nil {
			if m := dumpMember.FindStringSubmatch(r[1]); m != nil {
				names[m[1]] = c[1]
			}
		}
	}
	values := map[string][]string{}
	for _, r := range records {
		key, value := r[1], r[2]
		key = dumpMember.ReplaceAllStringFunc(key, func(s string) string {
			return `"memberId":"` + names[dumpMember.FindStringSubmatch(s)[1]] + `"`
		})
		for _, m := range dumpMasks {
			value = m.pattern.ReplaceAllString(value, m.with)
		}
		if before := values[key]; strings.HasPrefix(key, `{"type":"1"`) && len(before) > 0 && before[len(before)-1] != "<DELETE>" {
			values[key] = before[:len(before)-1]
		}
		values[key] = append(values[key], value)
	}
	for key, v := range values {
		values[key] = slices.CompactFunc(v, func(a, b string) bool { return waits(a) && waits(b) })
	}
	return values
}

// waits says that a member waits for tasks that others give up. How often it says so depends on when its heartbeats come: once counts.
func waits(value string) bool {
	return strings.Contains(value, `"state":3,"activeTasks":[],"standbyTasks":[]`)
}
