package kafkatest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Tag is what an application's record says of its making (tests/jvm/src/Tag.java).
type Tag struct {
	By     string // the instance
	Thread string // the stream thread
	Task   string // like 0_3
	// Tenure is process.n: one for each time that the task was given to a process. A task that comes back begins a new one.
	Tenure string
	Source Source // what it was made of
	At     int64  // when, in microseconds since 1970, by the clock that all processes of a test share
}

// Source is a record that an application has read.
type Source struct {
	Topic     string
	Partition int32
	Offset    int64
}

// readTag reads the headers. The tag is empty where there are none.
func readTag(headers []kgo.RecordHeader) (t Tag, err error) {
	for _, h := range headers {
		v := string(h.Value)
		switch h.Key {
		case "by":
			t.By = v
		case "thread":
			t.Thread = v
		case "task":
			t.Task = v
		case "tenure":
			t.Tenure = v
		case "from":
			t.Source, err = readSource(v)
		case "at":
			t.At, err = strconv.ParseInt(v, 10, 64)
		}
		if err != nil {
			return Tag{}, fmt.Errorf("header %s: %w", h.Key, err)
		}
	}
	return t, nil
}

func readSource(s string) (Source, error) {
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return Source{}, fmt.Errorf("%q is not topic:partition:offset", s)
	}
	p, err := strconv.ParseInt(parts[1], 10, 32)
	if err != nil {
		return Source{}, err
	}
	offset, err := strconv.ParseInt(parts[2], 10, 64)
	return Source{Topic: parts[0], Partition: int32(p), Offset: offset}, err
}

// OutOfOrder is what a Breach says of the third rule of CheckTenures.
const OutOfOrder = "made of an earlier record than the one before"

// Breach is a sign that a task was owned twice at a time, or that its owner did what no owner does.
type Breach struct {
	Task  string
	Late  Seen // what should not have been written where or when it was
	After Seen // what was there before it
	What  string
}

func (b Breach) String() string {
	return fmt.Sprintf("task %s: %s: %s; before it was %s", b.Task, b.What, b.Late.made(), b.After.made())
}

func (s Seen) made() string {
	return fmt.Sprintf("partition %d offset %d by %s (tenure %s, of %+v, at %d µs)", s.Partition, s.Offset, s.By, s.Tenure, s.Source, s.At)
}

// CheckTenures looks in an output topic, from its start, for tasks that had two owners at a time. With at-least-once a task that
// is handed over may repeat records, but
//
//   - in the log, once a tenure has written in a partition, no earlier one of the task writes there any more: the tenures' records
//     don't interleave;
//   - by the clock, the time from the first to the last record of a tenure, in all partitions together, does not overlap that of another
//     tenure of the task: this sees owners that write to different partitions, and the first rule those whose clocks can't be compared;
//   - within a tenure, the records of a partition that it reads come in the order of their offsets.
//
// Records without a tag are of no account. At most one breach is told per rule and pair of tenures.
func CheckTenures(all []Seen) []Breach {
	var found []Breach
	byTask := map[string][]Seen{}
	for _, s := range all {
		if s.Tenure != "" {
			byTask[s.Task] = append(byTask[s.Task], s)
		}
	}
	for _, task := range slices.Sorted(maps.Keys(byTask)) {
		records := byTask[task]
		slices.SortStableFunc(records, func(a, b Seen) int {
			return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
		})
		found = slices.Concat(found, interleaved(task, records), overlapping(task, records), disordered(task, records))
	}
	return found
}

// interleaved takes a task's records in the order of the log, partition after partition.
func interleaved(task string, records []Seen) (found []Breach) {
	over := map[string]Seen{} // by tenures that another has followed in this partition: the first record of that other
	told := map[string]bool{}
	owner := ""
	for i, s := range records {
		if i == 0 || records[i-1].Partition != s.Partition {
			clear(over)
			clear(told)
			owner = s.Tenure
			continue
		}
		if s.Tenure == owner {
			continue
		}
		if first, ok := over[s.Tenure]; ok { // the owner stays who it is: what it writes afterwards is right
			if !told[s.Tenure] {
				told[s.Tenure] = true
				found = append(found, Breach{Task: task, Late: s, After: first, What: "written after the next owner had begun"})
			}
			continue
		}
		over[owner], owner = s, s.Tenure
	}
	return found
}

// overlapping compares the times of a task's tenures.
func overlapping(task string, records []Seen) (found []Breach) {
	type tenure struct{ first, last Seen }
	tenures := map[string]*tenure{}
	for _, s := range records {
		t := tenures[s.Tenure]
		if t == nil {
			t = &tenure{s, s}
			tenures[s.Tenure] = t
		}
		if s.At < t.first.At {
			t.first = s
		}
		if s.At > t.last.At {
			t.last = s
		}
	}
	inOrder := slices.SortedFunc(maps.Values(tenures), func(a, b *tenure) int {
		return cmp.Or(cmp.Compare(a.first.At, b.first.At), cmp.Compare(a.first.Tenure, b.first.Tenure))
	})
	longest := 0 // of those before, the one that ends last
	for i := 1; i < len(inOrder); i++ {
		if before := inOrder[longest]; before.last.At >= inOrder[i].first.At {
			found = append(found, Breach{Task: task, Late: before.last, After: inOrder[i].first, What: "made while another owner was at work"})
		}
		if inOrder[i].last.At > inOrder[longest].last.At {
			longest = i
		}
	}
	return found
}

// disordered takes a task's records in the order of the log, partition after partition.
func disordered(task string, records []Seen) (found []Breach) {
	type stream struct {
		partition int32 // of the output
		tenure    string
		topic     string
		source    int32
	}
	last := map[stream]Seen{}
	told := map[stream]bool{}
	for _, s := range records {
		key := stream{s.Partition, s.Tenure, s.Source.Topic, s.Source.Partition}
		if before, ok := last[key]; ok && s.Source.Offset < before.Source.Offset && !told[key] {
			told[key] = true
			found = append(found, Breach{Task: task, Late: s, After: before, What: OutOfOrder})
		}
		last[key] = s
	}
	return found
}
