package streams

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"streamkeeper/eventlog"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The files of testdata/golden were captured between real Kafka Streams 4.4 applications and a Kafka 4.4.0 broker: bodies of
// heartbeats with their responses (ms: since the broker's start), and the records of the group (at: ms since 1970). Plugin
// "none" has no topology descriptions; in "inmemory" the broker also writes type-17 records about them.

// goldenLine is a heartbeat or a record.
type goldenLine struct {
	Ms       int64
	Version  int16
	Client   string
	Request  string
	Response string

	At    int64
	Batch int64
	Key   string
	Value *string
}

type goldenBeat struct {
	ms     int64
	client string
	req    *kmsg.StreamsGroupHeartbeatRequest
	resp   *kmsg.StreamsGroupHeartbeatResponse
}

// goldenBatch are the records of one operation.
type goldenBatch struct {
	at      int64
	records []eventlog.Record
}

type golden struct {
	t       *testing.T
	beats   []goldenBeat
	batches []goldenBatch

	g          *Group
	topics     fakeTopics
	partitions int32
	base       int64 // what to add to a beat's ms
	now        int64
	timers     clock
}

// TestCapturedApplications drives a group with the requests of real applications: responses and records must be the captured ones,
// but for topic ids (and so the metadata hash) and times.
func TestCapturedApplications(t *testing.T) {
	files, err := filepath.Glob("testdata/golden/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".jsonl")
		for _, quirks := range []Quirks{QuirkFirstSoftLost | QuirkAssignmentNotRepeated, QuirkFirstSoftLost} {
			// Without the second quirk too: a member of a real application that has not lost a response is never told twice.
			t.Run(fmt.Sprintf("%s/%d", name, quirks), func(t *testing.T) { replayCapture(t, f, quirks) })
		}
	}
}

func replayCapture(t *testing.T, file string, quirks Quirks) {
	c := readCapture(t, file)
	env := func(client string) Env {
		return Env{Now: c.now, Topics: &c.topics, Config: DefaultConfig(), APIVersion: 1, ClientID: client, ClientHost: "/127.0.0.1", Quirks: quirks}
	}
	c.g = NewGroup(c.beats[0].req.Group)
	c.base = c.batches[0].at - c.beats[0].ms
	for i, b := range c.beats {
		c.elapse(c.base+b.ms, env)
		c.absorb(c.now)
		c.topicsAsOf(b)
		if err := Validate(b.req); err != nil {
			t.Fatalf("beat %d: %v", i, err)
		}
		r, err := c.g.Heartbeat(env(b.client), b.req)
		if err != nil {
			r.Response = ErrorResponse(1, err.(*Error))
		}
		if got, want := beatText(r.Response), beatText(b.resp); got != want {
			t.Fatalf("beat %d of %s at %d: answered\n%s\nKafka answered\n%s\ngroup:\n%s", i, b.req.MemberID, b.ms, got, want, c.g)
		}
		c.expect(fmt.Sprintf("beat %d of %s at %d", i, b.req.MemberID, b.ms), r.Records)
		c.apply(r)
	}
	// What is left: sessions that ended, and at last the deletion of the group.
	c.elapse(c.now+10*60_000, env)
	c.absorb(math.MaxInt64)
	if len(c.batches) > 0 {
		recs, err := c.g.Delete()
		if err != nil {
			t.Fatal(err)
		}
		c.expect("delete", recs)
		c.apply(Result{Records: recs})
		if c.g.Exists() {
			t.Fatalf("deleted, and there is still\n%s", c.g)
		}
	}
	if len(c.batches) > 0 {
		t.Fatalf("%d operations left, first %s", len(c.batches), recordsText(c.batches[0].records))
	}
}

func readCapture(t *testing.T, file string) *golden {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := &golden{t: t, topics: fakeTopics{version: 1}}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	last := int64(-1)
	for lines.Scan() {
		var l goldenLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		if l.Request != "" {
			c.beats = append(c.beats, readBeat(t, l))
			continue
		}
		rec, err := eventlog.Decode(eventlog.Raw{Key: unhex(t, l.Key), Value: unhexOrNil(t, l.Value)})
		if err != nil {
			t.Fatal(err)
		}
		if l.Batch != last {
			last = l.Batch
			c.batches = append(c.batches, goldenBatch{at: l.At})
		}
		b := &c.batches[len(c.batches)-1]
		b.records = append(b.records, rec)
		if v, ok := rec.Value.(*eventlog.TargetAssignmentMember); ok {
			for _, ids := range v.Active {
				c.partitions = max(c.partitions, slices.Max(ids.Partitions)+1)
			}
		}
	}
	c.partitions = max(c.partitions, 1)
	return c
}

func readBeat(t *testing.T, l goldenLine) goldenBeat {
	b := goldenBeat{ms: l.Ms, client: l.Client, req: kmsg.NewPtrStreamsGroupHeartbeatRequest(), resp: kmsg.NewPtrStreamsGroupHeartbeatResponse()}
	b.req.Version, b.resp.Version = l.Version, l.Version
	if err := b.req.ReadFrom(unhex(t, l.Request)); err != nil {
		t.Fatal(err)
	}
	if err := b.resp.ReadFrom(unhex(t, l.Response)); err != nil {
		t.Fatal(err)
	}
	return b
}

func unhex(t *testing.T, s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func unhexOrNil(t *testing.T, s *string) []byte {
	if s == nil {
		return nil
	}
	return unhex(t, *s)
}

// topicsAsOf makes the topics such that the captured status follows from them: all that are needed, but for those listed as
// missing. While the count of missing ones is all that the status tells, none of the internal topics exists.
func (c *golden) topicsAsOf(b goldenBeat) {
	topo := c.g.topology
	if topo == nil && b.req.Topology != nil {
		topo = newTopology(topologyOfRequest(b.req.Topology))
	}
	missing := func(string) bool { return false }
	for _, s := range b.resp.Status {
		switch s.StatusCode {
		case statusMissingSources, statusMissingInternal:
			names := strings.FieldsFunc(s.StatusDetail, func(r rune) bool { return r == ' ' || r == ',' || r == ';' })
			missing = func(name string) bool { return slices.Contains(names, name) }
			if strings.Contains(s.StatusDetail, "additional topics") {
				missing = func(name string) bool {
					return strings.HasSuffix(name, "-changelog") || strings.HasSuffix(name, "-repartition")
				}
			}
		}
	}
	next := map[string]Topic{}
	for _, s := range topo.sorted {
		for _, name := range s.SourceTopics {
			if !missing(name) {
				next[name] = namedTopic(name, c.partitions)
			}
		}
	}
	if conf, err := configure(topo, &fakeTopics{byName: next}); err == nil {
		for _, t := range conf.create {
			if !missing(t.Name) {
				next[t.Name] = namedTopic(t.Name, t.Partitions)
			}
		}
	}
	c.topics.set(next)
}

// elapse fires what is due.
func (c *golden) elapse(to int64, env func(string) Env) {
	for {
		t, at, ok := c.timers.next(to)
		if !ok {
			break
		}
		c.now = at
		c.absorb(at)
		r := c.g.Fire(env(""), t)
		if len(r.Records) > 0 {
			c.expect(fmt.Sprintf("timer %v", t.Key), r.Records)
		}
		c.apply(r)
	}
	c.now = max(c.now, to)
}

func (c *golden) apply(r Result) {
	for _, rec := range r.Records {
		if err := c.g.Apply(rec); err != nil {
			c.t.Fatal(err)
		}
	}
	c.g.ApplySoft(r.Soft)
	c.timers.schedule(c.now, r.Timers)
}

// absorb applies the operations until then that only change what a type-17 record says of topology descriptions: another part of
// the coordinator.
func (c *golden) absorb(until int64) {
	for len(c.batches) > 0 && len(c.batches[0].records) == 1 && c.batches[0].at <= until {
		rec := c.batches[0].records[0]
		v, ok := rec.Value.(*eventlog.Group)
		if !ok || v.Epoch != c.g.meta.Epoch || v.StoredDescriptionTopologyEpoch == c.g.meta.StoredDescriptionTopologyEpoch {
			return
		}
		meta := *v
		meta.MetadataHash = c.g.meta.MetadataHash
		if err := c.g.Apply(eventlog.Record{Key: rec.Key, Value: &meta}); err != nil {
			c.t.Fatal(err)
		}
		c.batches = c.batches[1:]
	}
}

// expect compares the records of an operation with those that come next in the capture.
func (c *golden) expect(what string, records []eventlog.Record) {
	c.t.Helper()
	if len(records) == 0 {
		return
	}
	if len(c.batches) == 0 {
		c.t.Fatalf("%s wrote\n%s\nKafka wrote nothing more", what, recordsText(records))
	}
	if got, want := recordsText(records), recordsText(c.batches[0].records); got != want {
		c.t.Fatalf("%s wrote\n%s\nKafka wrote\n%s\ngroup:\n%s", what, got, want, c.g)
	}
	c.batches = c.batches[1:]
}

// recordsText prints records as bytes after masking topic ids (in the metadata hash) and times; targets in order of members, because
// Kafka writes them in that of a hash map.
func recordsText(records []eventlog.Record) string {
	lines := make([]string, len(records))
	for i, r := range records {
		switch v := r.Value.(type) {
		case *eventlog.Group:
			masked := *v
			masked.MetadataHash = 0
			r.Value = &masked
		case *eventlog.TargetAssignment:
			if v.AssignmentTimestamp != 0 {
				r.Value = &eventlog.TargetAssignment{AssignmentEpoch: v.AssignmentEpoch, AssignmentTimestamp: 1}
			}
		}
		raw := eventlog.Encode(r)
		lines[i] = fmt.Sprintf("%2d %x = %x", r.Key.Type, raw.Key, raw.Value)
		if raw.Value == nil {
			lines[i] = fmt.Sprintf("%2d %x tombstone", r.Key.Type, raw.Key)
		}
	}
	isTarget := func(s string) bool { return strings.HasPrefix(s, "21 ") }
	if from := slices.IndexFunc(lines, isTarget); from >= 0 {
		to := from
		for to < len(lines) && isTarget(lines[to]) {
			to++
		}
		slices.Sort(lines[from:to])
	}
	return strings.Join(lines, "\n")
}

// beatText prints a response after masking what is another part's (the push of a description) and sorting what Kafka takes from a
// hash map.
func beatText(r *kmsg.StreamsGroupHeartbeatResponse) string {
	m := *r
	m.TopologyDescriptionRequired = false
	for _, l := range [][]kmsg.TaskIDs{m.ActiveTasks, m.StandbyTasks, m.WarmupTasks} {
		slices.SortFunc(l, func(a, b kmsg.TaskIDs) int { return strings.Compare(a.SubtopologyID, b.SubtopologyID) })
	}
	m.Status = slices.Clone(m.Status)
	for i, s := range m.Status {
		if s.StatusCode == statusMissingInternal {
			detail := strings.FieldsFunc(s.StatusDetail, func(r rune) bool { return r == ' ' || r == ',' })
			slices.Sort(detail)
			m.Status[i].StatusDetail = strings.Join(detail, " ")
			if _, more, ok := strings.Cut(s.StatusDetail, " and "); ok {
				m.Status[i].StatusDetail = more
			}
		}
	}
	// Through the bytes, so that nil and empty are what they are on the wire.
	again := kmsg.NewPtrStreamsGroupHeartbeatResponse()
	again.Version = m.Version
	if err := again.ReadFrom(m.AppendTo(nil)); err != nil {
		return err.Error()
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(again); err != nil {
		return err.Error()
	}
	return b.String()
}

// clock keeps timers as a shard does.
type clock struct {
	set []clockTimer
	seq int
}

type clockTimer struct {
	Timer
	at  int64
	seq int
}

func (c *clock) schedule(now int64, timers []Timer) {
	for _, t := range timers {
		c.set = slices.DeleteFunc(c.set, func(x clockTimer) bool { return x.Key == t.Key })
		if t.After >= 0 {
			c.seq++
			c.set = append(c.set, clockTimer{t, now + int64(t.After/time.Millisecond), c.seq})
		}
	}
}

// next takes the first timer that is due until then.
func (c *clock) next(until int64) (Timer, int64, bool) {
	found := -1
	for i, t := range c.set {
		if t.at <= until && (found < 0 || t.at < c.set[found].at || t.at == c.set[found].at && t.seq < c.set[found].seq) {
			found = i
		}
	}
	if found < 0 {
		return Timer{}, 0, false
	}
	t := c.set[found]
	c.set = slices.Delete(c.set, found, found+1)
	return t.Timer, t.at, true
}

// fakeTopics are topics that a test sets.
type fakeTopics struct {
	version int64
	byName  map[string]Topic
}

func (f *fakeTopics) Topic(name string) (Topic, bool) { t, ok := f.byName[name]; return t, ok }
func (f *fakeTopics) Version() int64                  { return f.version }

// set replaces the topics; the version changes with them.
func (f *fakeTopics) set(next map[string]Topic) {
	f.byName = next
	f.version++
}

// namedTopic is a topic whose id follows from its name.
func namedTopic(name string, partitions int32) Topic {
	t := Topic{Name: name, Partitions: partitions}
	copy(t.ID[:], "topic:"+name)
	return t
}
