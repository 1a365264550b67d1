package assignor

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"reflect"
	"testing"
)

// vector is a line of testdata/vectors-sticky-assignor.jsonl.gz: input and result of Kafka 4.4's own class for
// members in ascending order. The steps of a chain build on each other's results.
type vector struct {
	Chain, Step        int
	NumStandbyReplicas int
	RackAwareTags      []string
	Subtopologies      []struct {
		ID         string
		Partitions int32
		Stateful   bool
	}
	Members []struct {
		MemberID, ProcessID       string
		ClientTags                map[string]string
		ActiveTasks, StandbyTasks Tasks
		TaskOffsets               map[string]map[int32]int64
	}
	Result map[string]struct{ Active, Standby Tasks }
}

func (v vector) spec() Spec {
	s := Spec{NumStandbyReplicas: v.NumStandbyReplicas, RackAwareTags: v.RackAwareTags}
	for _, sub := range v.Subtopologies {
		s.Subtopologies = append(s.Subtopologies, Subtopology{ID: sub.ID, Tasks: sub.Partitions, Stateful: sub.Stateful})
	}
	for _, m := range v.Members {
		member := Member{MemberID: m.MemberID, ProcessID: m.ProcessID, ClientTags: m.ClientTags, Active: m.ActiveTasks, Standby: m.StandbyTasks}
		for sub, offsets := range m.TaskOffsets {
			for p, offset := range offsets {
				if member.TaskOffsets == nil {
					member.TaskOffsets = map[Task]int64{}
				}
				member.TaskOffsets[Task{sub, p}] = offset
			}
		}
		s.Members = append(s.Members, member)
	}
	return s
}

func TestStickyEqualsKafkas(t *testing.T) {
	f, err := os.Open("testdata/vectors-sticky-assignor.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<20)
	n, standbys := 0, 0
	for ; lines.Scan(); n++ {
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatalf("line %d: %v", n+1, err)
		}
		want := map[string]Target{}
		for id, r := range v.Result {
			want[id] = Target{Active: r.Active, Standby: r.Standby}
			standbys += len(r.Standby)
		}
		got, err := sticky{javaOrder}.Assign(v.spec())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("chain %d step %d: %v\n got %v\nwant %v", v.Chain, v.Step, err, got, want)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if n < 100 || standbys == 0 {
		t.Fatalf("%d vectors, %d standbys: not what this test was written for", n, standbys)
	}
}
