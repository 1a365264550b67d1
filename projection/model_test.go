package projection

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"streamkeeper/eventlog"
)

// model is the projection of one partition as anybody would write it: maps, and no shortcuts.
type model struct {
	records map[eventlog.Key]Stored
	pending map[pendingID]Stored
	owner   eventlog.Owner
	owned   bool
}

type pendingID struct {
	producer int64
	key      eventlog.Key
}

func newModel() *model {
	return &model{records: map[eventlog.Key]Stored{}, pending: map[pendingID]Stored{}}
}

// apply applies an entry that counts.
func (m *model) apply(e eventlog.Entry) {
	if e.Control != eventlog.ControlNone {
		for id, s := range m.pending {
			if id.producer != e.ProducerID || e.Control == eventlog.ControlOther {
				continue
			}
			delete(m.pending, id)
			if old, ok := m.records[id.key]; e.Control == eventlog.ControlCommit && (!ok || s.Offset > old.Offset) {
				m.records[id.key] = s
			}
		}
		return
	}
	r, err := eventlog.Decode(eventlog.Raw{Key: e.Key, Value: e.Value})
	if err != nil {
		return // of a type that isn't ours
	}
	if r.Key.Type == eventlog.TypeOwnership {
		o := r.Value.(*eventlog.Ownership)
		m.owner, m.owned = eventlog.Owner{Ownership: *o, Offset: e.Offset, Generation: o.Claim, Timestamp: e.Timestamp}, true
		if o.Claim < 0 {
			m.owner.Generation = e.Offset
		}
		return
	}
	if r.Key.Type == eventlog.TypeLegacyOffsetCommit {
		r.Key.Type = eventlog.TypeOffsetCommit
	}
	switch {
	case r.Value == nil:
		delete(m.records, r.Key)
		maps.DeleteFunc(m.pending, func(id pendingID, _ Stored) bool { return id.key == r.Key })
	case e.Transactional:
		m.pending[pendingID{e.ProducerID, r.Key}] = Stored{e.Offset, r}
	default:
		m.records[r.Key] = Stored{e.Offset, r}
	}
}

var hydrationOrder = []eventlog.Type{
	eventlog.TypeTopology, eventlog.TypeGroup, eventlog.TypeMember,
	eventlog.TypeCurrentMemberAssignment, eventlog.TypeTargetAssignmentMember, eventlog.TypeTargetAssignment, eventlog.TypeDescriptionRefusal,
	eventlog.TypeGroupConfig,
}

func (m *model) group(group string) []Stored {
	var out []Stored
	for k, s := range m.records {
		if k.Group == group && slices.Contains(hydrationOrder, k.Type) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b Stored) int {
		return cmp.Or(
			cmp.Compare(slices.Index(hydrationOrder, a.Record.Key.Type), slices.Index(hydrationOrder, b.Record.Key.Type)),
			strings.Compare(a.Record.Key.Member, b.Record.Key.Member))
	})
	return out
}

// names are the groups for which f says so of one of their records, ascending.
func (m *model) names(f func(Stored) bool) []string {
	set := map[string]bool{}
	for k, s := range m.records {
		if f(s) {
			set[k.Group] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

func ofType(t eventlog.Type) func(Stored) bool {
	return func(s Stored) bool { return s.Record.Key.Type == t }
}

func (m *model) offsets(group string) []Stored {
	var out []Stored
	for k, s := range m.records {
		if k.Group == group && k.Type == eventlog.TypeOffsetCommit {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b Stored) int {
		return cmp.Or(strings.Compare(a.Record.Key.Topic, b.Record.Key.Topic), cmp.Compare(a.Record.Key.Partition, b.Record.Key.Partition))
	})
	return out
}

func (m *model) pendingOf(group string) map[pendingID]Stored {
	out := map[pendingID]Stored{}
	for id, st := range m.pending {
		if id.key.Group == group {
			out[id] = st
		}
	}
	return out
}

// tester is what *testing.T and *rapid.T have in common.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

func must(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// sameAsModel compares everything that can be asked of partition p.
func sameAsModel(t tester, s *Store, p int32, m *model) {
	t.Helper()
	collect := func(read func(f func(string) bool) error) []string {
		t.Helper()
		var got []string
		must(t, read(func(g string) bool { got = append(got, g); return true }))
		return got
	}
	equal := func(what string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s of partition %d\n got %+v\nwant %+v", what, p, got, want)
		}
	}
	equal("groups", collect(func(f func(string) bool) error { return s.Groups(p, f) }), m.names(ofType(eventlog.TypeGroup)))
	groups, offsets, err := s.Counts(p)
	must(t, err)
	stored := int64(0)
	for _, group := range m.names(ofType(eventlog.TypeOffsetCommit)) {
		stored += int64(len(m.offsets(group)))
	}
	equal("counts", [2]int64{groups, offsets}, [2]int64{int64(len(m.names(ofType(eventlog.TypeGroup)))), stored})
	equal("groups with members", collect(func(f func(string) bool) error { return s.GroupsWithMembers(p, f) }), m.names(ofType(eventlog.TypeMember)))
	equal("groups with a configuration", collect(func(f func(string) bool) error { return s.GroupsWithConfig(p, f) }), m.names(ofType(eventlog.TypeGroupConfig)))
	// All groups with their offsets, and those of every second group alone: the scan has to find its way over what was not asked for.
	for _, after := range append([]string{""}, testGroups...) {
		for _, every := range []int{1, 2} {
			var names []string
			n := 0
			must(t, s.GroupsAndOffsets(p, after, func(group string, offsets func(func(Stored) bool) error) bool {
				names = append(names, group)
				if n++; n%every == 0 {
					var got []Stored
					must(t, offsets(func(st Stored) bool { got = append(got, st); return true }))
					equal("offsets beside "+group, got, m.offsets(group))
				}
				return true
			}))
			var want []string
			for _, group := range m.names(ofType(eventlog.TypeGroup)) {
				if after == "" || group > after {
					want = append(want, group)
				}
			}
			equal("groups above "+after, names, want)
		}
	}
	// Groups one after the other with one reader: upwards, again, and back.
	order := slices.Concat(testGroups, testGroups[:1])
	for _, group := range slices.Backward(testGroups) {
		order = append(order, group)
	}
	must(t, s.ReadMany(p, func(r GroupReader) error {
		for i, group := range order {
			got, err := r.Group(group)
			must(t, err)
			equal("one of many, "+group, got, m.group(group))
			if i%2 == 0 { // what is not asked for must not be in the way
				var offsets []Stored
				must(t, r.Offsets(group, func(st Stored) bool { offsets = append(offsets, st); return true }))
				equal("one of many, offsets of "+group, offsets, m.offsets(group))
			}
			pending := map[pendingID]Stored{}
			must(t, r.Pending(group, func(id int64, st Stored) bool { pending[pendingID{id, st.Record.Key}] = st; return true }))
			equal("one of many, pending of "+group, pending, m.pendingOf(group))
		}
		return nil
	}))
	for _, topic := range testTopics {
		equal("groups of topic "+topic, collect(func(f func(string) bool) error { return s.GroupsOfTopic(p, topic, f) }), m.names(func(st Stored) bool {
			v, ok := st.Record.Value.(*eventlog.Topology)
			_, named := topicsOf(v0(v))[topic]
			return ok && named
		}))
	}
	for _, group := range testGroups {
		got, err := s.Group(p, group)
		must(t, err)
		equal("group "+group, got, m.group(group))
		has, err := s.HasGroup(p, group)
		must(t, err)
		_, want := m.records[eventlog.Key{Type: eventlog.TypeGroup, Group: group}]
		equal("has "+group, has, want)
		configs, err := s.GroupConfig(p, group)
		must(t, err)
		wanted, _ := m.records[eventlog.Key{Type: eventlog.TypeGroupConfig, Group: group}].Record.Value.(*eventlog.GroupConfig)
		if wanted == nil {
			wanted = &eventlog.GroupConfig{}
		}
		equal("configuration of "+group, configs, wanted.Configs)

		var offsets []Stored
		must(t, s.Offsets(p, group, func(st Stored) bool { offsets = append(offsets, st); return true }))
		equal("offsets of "+group, offsets, m.offsets(group))
		for _, topic := range testTopics {
			for partition := range int32(2) {
				k := eventlog.Key{Type: eventlog.TypeOffsetCommit, Group: group, Topic: topic, Partition: partition}
				got, ok, err := s.Offset(p, group, topic, partition)
				must(t, err)
				want, wantOK := m.records[k]
				equal(fmt.Sprintf("offset %+v", k), []any{got, ok}, []any{want, wantOK})
			}
		}
		pending := map[pendingID]Stored{}
		must(t, s.Pending(p, group, func(id int64, st Stored) bool { pending[pendingID{id, st.Record.Key}] = st; return true }))
		equal("pending of "+group, pending, m.pendingOf(group))
	}
	owner, owned := s.Owner(p)
	owner.Former = nil // no record has it, and what of it is known depends on what compaction took: TestAProducerIDComesBack
	owner.Seen = time.Time{}
	equal("owner", []any{owner, owned}, []any{m.owner, m.owned})
	if n := s.parts[p].pending; n != len(m.pending) {
		t.Fatalf("counts %d pending offsets, there are %d", n, len(m.pending))
	}
}

func v0(t *eventlog.Topology) *eventlog.Topology {
	if t == nil {
		return &eventlog.Topology{}
	}
	return t
}

// Names that are prefixes of each other, hold the bytes that keys use themselves, and sort in odd ways.
var (
	testGroups = []string{"a", "a\x00", "a\x00\x01b", "ab", "", "\xff\xff", "ü"}
	testTopics = []string{"in", "in-", "", "o\x00ut"}
	testMember = []string{"m1", "m10", "m\x00", ""}
)

// A random log.

type genLog struct {
	entries    []eventlog.Entry
	valid      []bool // by entry
	pid        int64
	epoch      int16
	generation int64 // -1: nothing was claimed
	open       map[int64]bool
}

func newGenLog() *genLog { return &genLog{pid: 7, epoch: -1, generation: -1, open: map[int64]bool{}} }

func (g *genLog) add(e eventlog.Entry, valid bool) {
	e.Offset = int64(len(g.entries))
	e.Timestamp = 1000 + e.Offset
	g.entries, g.valid = append(g.entries, e), append(g.valid, valid)
}

func (g *genLog) plain(raw eventlog.Raw) eventlog.Entry {
	return eventlog.Entry{ProducerID: g.pid, ProducerEpoch: g.epoch, Key: raw.Key, Value: raw.Value}
}

func (g *genLog) ownership(o eventlog.Ownership) {
	o.Format, o.ProducerID, o.ProducerEpoch = 1, g.pid, g.epoch
	g.add(g.plain(eventlog.Encode(eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeOwnership}, Value: &o})), true)
}

func (g *genLog) claim(newProducer bool) {
	if newProducer {
		g.pid, g.epoch = g.pid+1, -1
	}
	g.epoch++
	g.generation = int64(len(g.entries))
	g.ownership(eventlog.Ownership{NodeID: int32(g.generation), Address: "h:1", Claim: -1})
}

func draw[T any](t *rapid.T, from []T, name string) T { return rapid.SampledFrom(from).Draw(t, name) }

func genOffsetRecord(t *rapid.T) eventlog.Record {
	k := eventlog.Key{
		Type: draw(t, []eventlog.Type{1, 1, 1, 0}, "type"), Group: draw(t, testGroups, "group"),
		Topic: draw(t, testTopics, "topic"), Partition: rapid.Int32Range(0, 1).Draw(t, "partition"),
	}
	if rapid.IntRange(0, 3).Draw(t, "tombstone") == 0 {
		return eventlog.Record{Key: k}
	}
	return eventlog.Record{Key: k, Value: &eventlog.OffsetCommit{Offset: rapid.Int64Range(0, 99).Draw(t, "offset"), LeaderEpoch: -1, ExpireTimestamp: -1}}
}

func genGroupRecord(t *rapid.T) eventlog.Record {
	typ := draw(t, []eventlog.Type{2, 17, 19, 20, 21, 22, 23, 23, eventlog.TypeDescriptionRefusal, eventlog.TypeGroupConfig}, "type")
	k := eventlog.Key{Type: typ, Group: draw(t, testGroups, "group")}
	switch typ {
	case 19, 21, 22:
		k.Member = draw(t, testMember, "member")
	}
	if rapid.IntRange(0, 2).Draw(t, "tombstone") == 0 {
		return eventlog.Record{Key: k}
	}
	n := rapid.Int32Range(1, 9).Draw(t, "n")
	r := eventlog.Record{Key: k}
	switch typ {
	case 2:
		r.Value = &eventlog.ClassicGroup{Generation: n}
	case 17:
		r.Value = &eventlog.Group{Epoch: n}
	case 19:
		r.Value = &eventlog.Member{ClientID: "c", TopologyEpoch: n}
	case 20:
		r.Value = &eventlog.TargetAssignment{AssignmentEpoch: n}
	case 21:
		r.Value = &eventlog.TargetAssignmentMember{Active: []eventlog.TaskIDs{{SubtopologyID: "0", Partitions: []int32{n}}}}
	case 22:
		r.Value = &eventlog.CurrentMemberAssignment{MemberEpoch: n, State: eventlog.MemberStable}
	case eventlog.TypeDescriptionRefusal:
		r.Value = &eventlog.DescriptionRefusal{Format: 1, TopologyEpoch: n}
	case eventlog.TypeGroupConfig:
		r.Value = &eventlog.GroupConfig{Format: eventlog.GroupConfigFormat, Configs: map[string]string{"n": fmt.Sprint(n)}}
	case 23:
		st := eventlog.Subtopology{SubtopologyID: "0"}
		topics := rapid.SliceOfN(rapid.SampledFrom(testTopics), 0, 3).Draw(t, "topics")
		for i, topic := range topics {
			switch (int(n) + i) % 4 {
			case 0:
				st.SourceTopics = append(st.SourceTopics, topic)
			case 1:
				st.RepartitionSinkTopics = append(st.RepartitionSinkTopics, topic)
			case 2:
				st.StateChangelogTopics = append(st.StateChangelogTopics, eventlog.TopicInfo{Name: topic})
			default:
				st.RepartitionSourceTopics = append(st.RepartitionSourceTopics, eventlog.TopicInfo{Name: topic})
			}
		}
		r.Value = &eventlog.Topology{Epoch: n, Subtopologies: []eventlog.Subtopology{st}}
	}
	return r
}

func header(generation int64) []eventlog.Header {
	return []eventlog.Header{{Key: eventlog.HeaderGeneration, Value: binary.BigEndian.AppendUint64(nil, uint64(generation))}}
}

// step adds an entry or a few. Void entries are wanted only if repaired is false; otherwise each is followed by its repair.
func (g *genLog) step(t *rapid.T, void bool) {
	client := rapid.Int64Range(500, 502).Draw(t, "client")
	switch action := rapid.IntRange(0, 19).Draw(t, "action"); {
	case action == 0:
		g.claim(g.generation >= 0 && rapid.IntRange(0, 3).Draw(t, "new producer") == 0)
	case action == 1 && g.generation >= 0:
		g.ownership(eventlog.Ownership{NodeID: int32(g.generation), Address: "h:1", Claim: g.generation})
	case action <= 5: // a client's transaction
		raw := eventlog.Encode(genOffsetRecord(t))
		e := eventlog.Entry{ProducerID: client, Transactional: true, Key: raw.Key, Value: raw.Value, Headers: header(g.generation)}
		g.open[client] = true
		if void && g.generation > 0 && rapid.IntRange(0, 3).Draw(t, "late") == 0 {
			e.Headers = header(g.generation - 1)
			g.add(e, false)
			return
		}
		g.add(e, true)
	case action <= 8:
		delete(g.open, client)
		g.add(eventlog.Entry{ProducerID: client, Transactional: true, Control: draw(t, []eventlog.ControlType{1, 1, 2, 3}, "marker"), Key: []byte{0, 0, 0, 1}}, true)
	case action == 9 && void && g.generation >= 0:
		e := g.plain(eventlog.Encode(genGroupRecord(t)))
		e.ProducerID = draw(t, []int64{-1, 6, g.pid - 1}, "stranger")
		g.add(e, false)
	case action == 10:
		g.add(g.plain(eventlog.Raw{Key: []byte{0, 3, 0, 1, 'g'}, Value: []byte{0, 0}}), true) // a consumer group's
	case action <= 14:
		g.add(g.plain(eventlog.Encode(genOffsetRecord(t))), true)
	default:
		g.add(g.plain(eventlog.Encode(genGroupRecord(t))), true)
	}
}

func (g *genLog) model(upTo int) *model {
	m := newModel()
	for i, e := range g.entries[:upTo] {
		if g.valid[i] {
			m.apply(e)
		}
	}
	return m
}

// batch is the batch of entries [from, to) of the log, whose end is end.
func batchOf(entries []eventlog.Entry, next, end int64) eventlog.Batch {
	return eventlog.Batch{Entries: entries, Next: next, LeaderEpoch: 3, HighWatermark: end}
}

func testConfig(fs vfs.FS) Config {
	return Config{
		Dir: "projection", FS: fs, DeleteRetention: 24 * time.Hour, CacheBytes: 1 << 20,
		Identity: eventlog.Identity{Topic: "__streams_groups", TopicID: [16]byte{1}, Partitions: 3},
	}
}

// TestProjectionEqualsModel: after any sequence of entries, read in batches of any size, with restarts anywhere, the store
// says what the model says.
func TestProjectionEqualsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := testConfig(vfs.NewMem())
		s, err := Open(cfg)
		must(t, err)
		defer func() { must(t, s.Close()) }()
		p := rapid.Int32Range(0, 2).Draw(t, "p")
		g := newGenLog()
		at, voids := 0, 0
		for range rapid.IntRange(1, 12).Draw(t, "batches") {
			for range rapid.IntRange(0, 8).Draw(t, "steps") {
				g.step(t, true)
			}
			end := int64(len(g.entries))
			must(t, s.Batch(p, batchOf(g.entries[at:], end, end)))
			for _, valid := range g.valid[at:] {
				if !valid {
					voids++
				}
			}
			at = len(g.entries)
			if s.Applied(p) != end || !s.AtEnd(p) {
				t.Fatalf("applied %d of %d, at the end %v", s.Applied(p), end, s.AtEnd(p))
			}
			if st := s.Stats(); st.Void != uint64(voids) {
				t.Fatalf("%d void entries, there are %d", st.Void, voids)
			}
			sameAsModel(t, s, p, g.model(at))
			if rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
				must(t, s.Close())
				s, err = Open(cfg)
				must(t, err)
				voids = 0
				if got := s.Resume(p); got.Offset != end {
					t.Fatalf("resumes at %+v, was at %d", got, end)
				}
				sameAsModel(t, s, p, g.model(at))
			}
		}
		for other := range int32(3) {
			if other != p {
				sameAsModel(t, s, other, newModel())
			}
		}
		if n := len(s.Stats().Rebuilds); n > 1 {
			t.Fatalf("rebuilt: %v", s.Stats().Rebuilds)
		}
	})
}
