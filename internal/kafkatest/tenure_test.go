package kafkatest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// history makes records of the task 0_1 of words like "a1@3:2>0": instance a in its tenure 1, at 3 µs, of the input's offset 2, to
// partition 0. Offsets in the output count by themselves.
func history(t *testing.T, words string) []Seen {
	t.Helper()
	var all []Seen
	next := map[int32]int64{}
	for _, w := range strings.Fields(words) {
		var by rune
		var tenure int
		s := Seen{Tag: Tag{Task: "0_1", Source: Source{Topic: "in", Partition: 1}}}
		if n, err := fmt.Sscanf(w, "%c%d@%d:%d>%d", &by, &tenure, &s.At, &s.Source.Offset, &s.Partition); n != 5 {
			t.Fatalf("%q: %v", w, err)
		}
		s.By, s.Tenure, s.Offset = string(by), fmt.Sprintf("%c.%d", by, tenure), next[s.Partition]
		next[s.Partition]++
		all = append(all, s)
	}
	return all
}

// TestTenuresThatOverlapAreFound: the checker is right about histories that are known to be good or bad.
func TestTenuresThatOverlapAreFound(t *testing.T) {
	for name, tc := range map[string]struct {
		words string
		want  []string
	}{
		"one owner":                            {"a1@1:0>0 a1@2:1>0 a1@3:2>1 a1@4:3>0", nil},
		"handed over, with repetitions":        {"a1@1:0>0 a1@2:1>0 a1@3:2>0 b1@4:1>0 b1@5:2>0 b1@6:3>0", nil},
		"it comes back":                        {"a1@1:0>0 b1@2:1>0 a2@3:2>0", nil},
		"several records of one":               {"a1@1:0>0 a1@1:0>0 a1@2:1>0", nil},
		"another task is another matter":       {"", nil},
		"the former owner writes again":        {"a1@1:0>0 b1@2:1>0 a1@3:1>0 b1@4:2>0", []string{"written after", "made while"}},
		"and a third one begins":               {"a1@1:0>0 b1@2:1>0 a1@3:1>0 c1@4:2>0 a1@5:1>0 b1@6:2>0 c1@7:3>0", []string{"written after", "written after", "made while", "made while"}},
		"at the same time, to two partitions":  {"a1@1:0>0 b1@2:1>1 a1@3:2>0", []string{"made while"}},
		"made in time, and written late":       {"a1@1:0>0 b1@5:1>0 a1@2:1>0", []string{"written after"}},
		"the end of one is within another":     {"a1@1:0>0 a1@9:1>0 b1@2:0>1 b1@3:1>1 c1@4:2>2", []string{"made while", "made while"}},
		"backwards":                            {"a1@1:5>0 a1@2:4>0 a1@3:3>0", []string{"made of an earlier"}},
		"backwards in a new tenure is allowed": {"a1@1:5>0 a2@2:3>0", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := CheckTenures(history(t, tc.words))
			if len(got) != len(tc.want) {
				t.Fatalf("%d breaches, want %d: %v", len(got), len(tc.want), got)
			}
			for i, b := range got {
				if !strings.HasPrefix(b.What, tc.want[i]) {
					t.Errorf("breach %d: %v, want %q", i, b, tc.want[i])
				}
			}
		})
	}
	two := append(history(t, "a1@1:0>0 a1@3:1>0"), history(t, "b1@2:0>0 b1@4:1>0")...)
	for i := range two[2:] {
		two[2+i].Task, two[2+i].Partition = "0_2", 1
	}
	if got := CheckTenures(two); len(got) != 0 {
		t.Errorf("two tasks with an owner each: %v", got)
	}
	// the order in which partitions were read is no matter
	bad := history(t, "a1@1:0>0 b1@2:1>0 a1@3:1>0")
	bad[0], bad[2] = bad[2], bad[0]
	if got := CheckTenures(bad); len(got) != 2 {
		t.Errorf("read in another order: %v", got)
	}
}

func TestTagsAreReadOrRefused(t *testing.T) {
	h := func(kv ...string) (headers []kgo.RecordHeader) {
		for i := 0; i < len(kv); i += 2 {
			headers = append(headers, kgo.RecordHeader{Key: kv[i], Value: []byte(kv[i+1])})
		}
		return headers
	}
	got, err := readTag(h("by", "a", "thread", "t", "task", "1_0", "tenure", "p.1", "from", "in:3:7", "at", "12", "other", "x"))
	if want := (Tag{"a", "t", "1_0", "p.1", Source{"in", 3, 7}, 12}); got != want || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range [][]string{{"from", "3:7"}, {"from", "in:x:7"}, {"from", "in:3:x"}, {"at", "now"}} {
		if got, err := readTag(h(bad...)); err == nil || got != (Tag{}) || !strings.Contains(err.Error(), "header "+bad[0]) {
			t.Errorf("%v: %+v, %v", bad, got, err)
		}
	}
}
