package assignor

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"reflect"
	"testing"
)

// vector is a line of testdata/vectors-sticky-*.jsonl.gz: input and result of Kafka 4.4's own class for
// members in ascending order. The steps of a chain build on each other's results; in the file "offsets" members also
// report task offsets, lose their tasks, and claim tasks that others have or that do not exist.
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
		ActiveTasks, StandbyTasks set
		TaskOffsets               map[string]map[int32]int64
	}
	Result map[string]struct{ Active, Standby set }
}

func (v vector) spec() Spec {
	s := Spec{NumStandbyReplicas: v.NumStandbyReplicas, RackAwareTags: v.RackAwareTags}
	for _, sub := range v.Subtopologies {
		s.Subtopologies = append(s.Subtopologies, Subtopology{ID: sub.ID, Tasks: sub.Partitions, Stateful: sub.Stateful})
	}
	for _, m := range v.Members {
		member := Member{MemberID: m.MemberID, ProcessID: m.ProcessID, ClientTags: m.ClientTags, Active: m.ActiveTasks.tasks(), Standby: m.StandbyTasks.tasks()}
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
	for _, c := range []struct {
		file                       string
		vectors, standbys, offsets int // that the file holds at least
	}{
		{"testdata/vectors-sticky-assignor.jsonl.gz", 200, 100, 0},
		{"testdata/vectors-sticky-offsets.jsonl.gz", 480, 1000, 1000},
	} {
		t.Run(c.file, func(t *testing.T) {
			standbys, offsets := 0, 0
			vectors := readVectors(t, c.file)
			for _, v := range vectors {
				want := map[string]Target{}
				for id, r := range v.Result {
					want[id] = Target{Active: r.Active.tasks(), Standby: r.Standby.tasks()}
					standbys += len(r.Standby)
				}
				spec := v.spec()
				for _, m := range spec.Members {
					offsets += len(m.TaskOffsets)
				}
				got, err := sticky{javaOrder}.Assign(spec)
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("chain %d step %d: %v\n got %v\nwant %v", v.Chain, v.Step, err, got, want)
				}
			}
			if len(vectors) < c.vectors || standbys < c.standbys || offsets < c.offsets {
				t.Fatalf("%d vectors, %d standbys, %d offsets: not what this test was written for", len(vectors), standbys, offsets)
			}
		})
	}
}

func readVectors(tb testing.TB, file string) []vector {
	tb.Helper()
	f, err := os.Open(file)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<20)
	var vectors []vector
	for lines.Scan() {
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			tb.Fatalf("%s, line %d: %v", file, len(vectors)+1, err)
		}
		vectors = append(vectors, v)
	}
	if err := lines.Err(); err != nil {
		tb.Fatal(err)
	}
	return vectors
}
