package streams

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"
)

// hashVector is a line of testdata/vectors-metadata-hash.jsonl, printed by Kafka 4.4's own classes.
type hashVector struct {
	Topics []struct {
		Name       string
		TopicID    string
		Partitions int32
		Racks      [][]string
		TopicHash  int64
	}
	GroupHash int64
}

func TestMetadataHashEqualsKafkas(t *testing.T) {
	f, err := os.Open("testdata/vectors-metadata-hash.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, surrogates := 0, 0
	for sc := bufio.NewScanner(f); sc.Scan(); lines++ {
		var v hashVector
		if err := json.Unmarshal(sc.Bytes(), &v); err != nil {
			t.Fatalf("line %d: %v", lines+1, err)
		}
		var topics []Topic
		for _, vt := range v.Topics {
			id, err := base64.RawURLEncoding.DecodeString(vt.TopicID)
			if err != nil || len(id) != 16 {
				t.Fatalf("line %d: topic id %q: %v", lines+1, vt.TopicID, err)
			}
			topic := Topic{Name: vt.Name, ID: [16]byte(id), Partitions: vt.Partitions, Racks: vt.Racks}
			if got := TopicHash(topic); got != vt.TopicHash {
				t.Errorf("line %d: topic %q: hash %d, want %d", lines+1, vt.Name, got, vt.TopicHash)
			}
			topics = append(topics, topic)
			if len(vt.Name) != utf16Len(vt.Name) {
				surrogates++
			}
		}
		before := slices.Clone(topics)
		if got := MetadataHash(topics); got != v.GroupHash {
			t.Errorf("line %d: group hash %d, want %d", lines+1, got, v.GroupHash)
		}
		slices.Reverse(topics)
		if got := MetadataHash(topics); got != v.GroupHash {
			t.Errorf("line %d: group hash depends on the order of the topics", lines+1)
		}
		slices.Reverse(topics)
		for i := range topics {
			if topics[i].Name != before[i].Name || !slices.EqualFunc(topics[i].Racks, before[i].Racks, slices.Equal) {
				t.Errorf("line %d: MetadataHash changed its argument", lines+1)
			}
		}
	}
	if lines < 10 || surrogates == 0 {
		t.Fatalf("%d lines, %d names beyond ASCII: the vectors are not what this test was written for", lines, surrogates)
	}
}

// The example of Kafka's documented layout: topic "in" with four partitions and no racks.
func TestTopicHashOfTheWorkedExample(t *testing.T) {
	topic := Topic{Name: "in", Partitions: 4}
	binary.BigEndian.PutUint64(topic.ID[:8], 3365)
	binary.BigEndian.PutUint64(topic.ID[8:], 4)
	if got, want := TopicHash(topic), int64(3344921025316670072); got != want {
		t.Errorf("topic hash %d, want %d", got, want)
	}
	if got, want := MetadataHash([]Topic{topic}), int64(-7955631550795665379); got != want {
		t.Errorf("group hash %d, want %d", got, want)
	}
	if got := MetadataHash(nil); got != 0 {
		t.Errorf("hash of no topics %d, want 0", got)
	}
}

func TestEveryFactOfATopicChangesItsHash(t *testing.T) {
	base := func() Topic {
		return Topic{Name: "a", ID: [16]byte{15: 1}, Partitions: 2, Racks: [][]string{{"r1"}, {"r1", "r2"}}}
	}
	for name, change := range map[string]func(*Topic){
		"name":           func(t *Topic) { t.Name = "b" },
		"id":             func(t *Topic) { t.ID[0] = 1 },
		"partitions":     func(t *Topic) { t.Partitions = 3 },
		"rack":           func(t *Topic) { t.Racks[0][0] = "r3" },
		"rack twice":     func(t *Topic) { t.Racks[0] = []string{"r1", "r1"} },
		"rack elsewhere": func(t *Topic) { t.Racks = [][]string{{"r1", "r2"}, {"r1"}} },
		"racks unknown":  func(t *Topic) { t.Racks = nil },
	} {
		changed := base()
		change(&changed)
		if TopicHash(changed) == TopicHash(base()) {
			t.Errorf("%s: same hash", name)
		}
	}
	swapped := base()
	swapped.Racks[1] = []string{"r2", "r1"}
	if TopicHash(swapped) != TopicHash(base()) {
		t.Error("the order in which replicas are listed changes the hash")
	}
}

func TestCompareJavaOrdersByCodeUnits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gen := rapid.StringOf(rapid.SampledFrom([]rune{'a', 'b', 'é', 0xd7ff, 0xe000, 0xff01, 0x10000, 0x1f600}))
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		want := slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
		if got := compareJava(a, b); got != want {
			t.Fatalf("compareJava(%q, %q) = %d, want %d", a, b, got, want)
		}
		if got, want := utf16Len(a), len(utf16.Encode([]rune(a))); got != want {
			t.Fatalf("utf16Len(%q) = %d, want %d", a, got, want)
		}
	})
}
