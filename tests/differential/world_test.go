package differential

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/shard/groupconfig"
	"streamkeeper/shard/offsets"
	"streamkeeper/shard/streams"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// failer is what *testing.T and *rapid.T have in common.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

const group = "g"

// world is one history on both sides.
type world struct {
	t      failer
	oracle *oracle
	broker *groupconfig.Broker
	cfg    streams.Config // in effect: what is configured for the group counts
	topics *topicSet
	now    int64 // ms

	g       *streams.Group
	log     []eventlog.Record // all records of the group, in order
	offsets *committed
	timers  []timer
	seq     int
	story   []string // what was done, for the report of a failure
	over    bool     // Kafka failed where we do not: from here on the states differ
}

type timer struct {
	streams.Timer
	at  int64
	seq int
}

// topicSet is the cluster's topics.
type topicSet struct {
	version int64
	byName  map[string]streams.Topic
}

func (s *topicSet) Topic(name string) (streams.Topic, bool) { t, ok := s.byName[name]; return t, ok }
func (s *topicSet) Version() int64                          { return s.version }

// oracleStart is the time at which a world begins.
const oracleStart = 1_000_000

func newWorld(t failer, o *oracle, cfg streams.Config) *world {
	t.Helper()
	w := &world{t: t, oracle: o, now: oracleStart, g: streams.NewGroup(group), offsets: newCommitted(), topics: &topicSet{version: 1, byName: map[string]streams.Topic{}}}
	ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	settings := map[string]string{
		"group.streams.initial.rebalance.delay.ms": ms(cfg.InitialRebalanceDelay),
		"group.streams.assignment.interval.ms":     ms(cfg.AssignmentInterval),
		"group.streams.num.standby.replicas":       strconv.Itoa(cfg.NumStandbyReplicas),
		"group.streams.session.timeout.ms":         ms(cfg.SessionTimeout),
		"group.streams.heartbeat.interval.ms":      ms(cfg.HeartbeatInterval),
		"group.streams.max.size":                   strconv.Itoa(cfg.MaxSize),
		"group.streams.rack.aware.assignment.tags": strings.Join(cfg.RackAwareTags, ","),
		// With warm-ups on, Kafka 4.4 keeps a copy of the targets in memory, from which a member that left is not removed: who leaves and
		// joins again under the same id before the next computation gets the old target. We do not copy that.
		"group.streams.num.warmup.replicas":   "0",
		"offsets.retention.check.interval.ms": "1000000000000", // no sweep: it is another package's
	}
	var err error
	if w.broker, err = groupconfig.NewBroker(settings); err != nil {
		t.Fatalf("%v", err)
	}
	w.cfg = w.broker.Config()
	w.do(map[string]any{"op": "init", "decode": false, "now": w.now, "configs": settings})
	return w
}

func (w *world) do(op map[string]any) answer {
	w.t.Helper()
	a, err := w.oracle.do(op)
	if err != nil {
		w.fail("%v", err)
	}
	return a
}

func (w *world) note(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf("%d ", w.now-oracleStart)+fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\n--- story ---\n%s\n--- our group ---\n%s", fmt.Sprintf(format, args...), strings.Join(w.story, "\n"), w.g)
}

func (w *world) env(version int16, clientID, host string) streams.Env {
	return streams.Env{Now: w.now, Topics: w.topics, Config: w.cfg, APIVersion: version, ClientID: clientID, ClientHost: host,
		Quirks: streams.QuirkFirstSoftLost | streams.QuirkAssignmentNotRepeated}
}

// apply does what a shard does with a result.
func (w *world) apply(r streams.Result) {
	w.t.Helper()
	for _, rec := range r.Records {
		raw := eventlog.Encode(rec)
		decoded, err := eventlog.Decode(raw)
		if err != nil {
			w.fail("our record can't be decoded: %v", err)
		}
		if err := w.g.Apply(decoded); err != nil {
			w.fail("our record can't be applied: %v", err)
		}
		w.log = append(w.log, decoded)
	}
	w.g.ApplySoft(r.Soft)
	w.schedule(r.Timers)
}

func (w *world) schedule(list []streams.Timer) {
	for _, t := range list {
		w.timers = slices.DeleteFunc(w.timers, func(x timer) bool { return x.Key == t.Key })
		if t.After >= 0 {
			w.seq++
			w.timers = append(w.timers, timer{Timer: t, at: w.now + t.After.Milliseconds(), seq: w.seq})
		}
	}
}

// setTopics replaces all topics.
func (w *world) setTopics(list []streams.Topic) {
	w.t.Helper()
	next := &topicSet{version: w.topics.version + 1, byName: map[string]streams.Topic{}}
	var op []map[string]any
	for _, t := range list {
		next.byName[t.Name] = t
		h := hex.EncodeToString(t.ID[:])
		op = append(op, map[string]any{"name": t.Name, "partitions": t.Partitions, "id": h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:], "racks": t.Racks})
	}
	before := w.topics
	w.topics = next
	w.note("topics %s", topicsText(list))
	a := w.do(map[string]any{"op": "topics", "topics": op})
	w.topicsDeleted(before, a.Records)
}

func topicsText(list []streams.Topic) string {
	var s []string
	for _, t := range list {
		s = append(s, fmt.Sprintf("%s/%d#%d", t.Name, t.Partitions, t.ID[15]))
	}
	return strings.Join(s, " ")
}

// advance moves time on; every timer fires when it is due, on both sides.
func (w *world) advance(by time.Duration) {
	w.t.Helper()
	to := w.now + by.Milliseconds()
	a := w.do(map[string]any{"op": "advance", "to": to})
	var ours []fired
	for {
		i := w.due(to)
		if i < 0 {
			break
		}
		t := w.timers[i]
		w.timers = slices.Delete(w.timers, i, i+1)
		w.now = t.at
		r := w.g.Fire(w.env(1, "", ""), t.Timer)
		if len(r.Records) > 0 {
			ours = append(ours, fired{At: w.now, Timer: timerName(t.Key), Records: hexRecords(r.Records)})
		}
		w.apply(r)
	}
	w.now = to
	w.note("advanced by %v", by)
	w.compare("timers", canonicalFired(a.Fired), canonicalFired(ours))
}

// due is the index of the first timer due until then; -1 if there is none.
func (w *world) due(to int64) int {
	found := -1
	for i, t := range w.timers {
		if t.at <= to && (found < 0 || t.at < w.timers[found].at || t.at == w.timers[found].at && t.seq < w.timers[found].seq) {
			found = i
		}
	}
	return found
}

func timerName(k streams.TimerKey) string {
	switch k.Kind {
	case streams.TimerSession:
		return "session-timeout-" + group + "-" + k.Member
	case streams.TimerRebalance:
		return "rebalance-timeout-" + group + "-" + k.Member
	}
	return "initial-rebalance-timeout-" + group
}

// request sends a request to the oracle and returns the body of the response.
func (w *world) request(req kmsg.Request, clientID, host string) (answer, []byte) {
	w.t.Helper()
	a := w.do(map[string]any{"op": "request", "api": req.Key(), "version": req.GetVersion(), "hex": hex.EncodeToString(req.AppendTo(nil)), "clientId": clientID, "clientHost": host})
	if a.Pending {
		w.fail("the oracle does not answer")
	}
	body, err := hex.DecodeString(a.ResponseHex)
	if err != nil {
		w.fail("%v", err)
	}
	return a, body
}

// heartbeat sends a heartbeat to both sides and compares responses and records.
func (w *world) heartbeat(req *kmsg.StreamsGroupHeartbeatRequest, clientID, host string) *kmsg.StreamsGroupHeartbeatResponse {
	w.t.Helper()
	w.note("%s", requestText(req, clientID))
	a, body := w.request(req, clientID, host)
	theirs := kmsg.NewPtrStreamsGroupHeartbeatResponse()
	theirs.Version = req.Version
	if err := theirs.ReadFrom(body); err != nil {
		w.fail("response of the oracle: %v", err)
	}
	r, err := w.ours(req, clientID, host)
	if err != nil {
		r.Response = streams.ErrorResponse(req.Version, err)
	}
	w.note("    → %s", responseText(theirs))
	if why := knownDefect(theirs, r.Response); why != "" {
		w.note("%s", why)
		w.over = true
		return theirs
	}
	w.compare("response", canonicalResponse(theirs), canonicalResponse(r.Response))
	w.compare("records", canonicalRecords(a.Records), canonicalRecords(hexRecords(r.Records)))
	w.compare("topics to create", canonicalInternal(a.Internal), canonicalCreate(r.Create))
	w.apply(r)
	return theirs
}

// knownDefect names the defect of Kafka 4.4 that made it fail where we do not; "" if it is none that we know.
func knownDefect(theirs, ours *kmsg.StreamsGroupHeartbeatResponse) string {
	if theirs.ErrorCode != -1 || ours.ErrorCode != 0 {
		return ""
	}
	for _, s := range ours.Status {
		if (s.StatusCode == 1 || s.StatusCode == 2) && len(ours.PartitionsByUserEndpoint) > 0 {
			return "Kafka can't list endpoints while the topology has no partition counts"
		}
	}
	return ""
}

// ours is our side of a heartbeat. The response goes through its bytes, as on the wire.
func (w *world) ours(req *kmsg.StreamsGroupHeartbeatRequest, clientID, host string) (streams.Result, *streams.Error) {
	w.t.Helper()
	if err := streams.Validate(req); err != nil {
		return streams.Result{}, err
	}
	before := w.g.String()
	r, err := w.g.Heartbeat(w.env(req.Version, clientID, host), req)
	if after := w.g.String(); after != before {
		w.fail("the handler changed the group:\n%s\n→\n%s", before, after)
	}
	if err != nil {
		e, ok := err.(*streams.Error)
		if !ok {
			w.fail("error of type %T: %v", err, err)
		}
		return r, e
	}
	again := kmsg.NewPtrStreamsGroupHeartbeatResponse()
	again.Version = req.Version
	if err := again.ReadFrom(r.Response.AppendTo(nil)); err != nil {
		w.fail("our response: %v", err)
	}
	r.Response = again
	return r, nil
}

// failOver loses everything that is not in the log on both sides.
func (w *world) failOver() {
	w.t.Helper()
	w.note("fail over")
	before := w.g.String()
	// The oracle's cleaner leaves records of transactions alone, so that without a tombstone behind them they would come back.
	plain := !w.offsets.transactions
	w.do(map[string]any{"op": "reload", "compact": plain, "dropTombstones": plain})
	w.g = hydrate(w.t, w.log)
	if after := w.g.String(); after != before {
		w.fail("hydrated:\n%s\nbefore:\n%s", after, before)
	}
	w.timers = nil
	// All sessions end at the same time, and which one first is up to the order in which Kafka iterates its members.
	restored := w.g.Restore(w.env(1, "", ""))
	rank := map[string]int{}
	for i, t := range w.liveTimers() {
		rank[t.Timer] = i
	}
	slices.SortStableFunc(restored, func(a, b streams.Timer) int { return rank[timerName(a.Key)] - rank[timerName(b.Key)] })
	w.schedule(restored)
	w.checkTimers()
}

// liveTimers are the oracle's timers of the group, in the order in which they will fire.
func (w *world) liveTimers() (r []liveTimer) {
	w.t.Helper()
	for _, t := range w.do(map[string]any{"op": "state"}).Timers {
		if strings.Contains(t.Timer, "-timeout-"+group) {
			r = append(r, t)
		}
	}
	return r
}

// checkTimers compares the timers that are set.
func (w *world) checkTimers() {
	w.t.Helper()
	ours := []string{}
	for _, t := range w.timers {
		ours = append(ours, fmt.Sprintf("%s at %d", timerName(t.Key), t.at))
	}
	theirs := []string{}
	for _, t := range w.liveTimers() {
		theirs = append(theirs, fmt.Sprintf("%s at %d", t.Timer, t.At))
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	w.compare("timers", theirs, ours)
}

// hydrate builds the group from the last value of each key, in the order of a projection.
func hydrate(t failer, log []eventlog.Record) *streams.Group {
	last := map[eventlog.Key]eventlog.Value{}
	for _, r := range log {
		last[r.Key] = r.Value
	}
	order := []eventlog.Type{eventlog.TypeTopology, eventlog.TypeGroup, eventlog.TypeMember, eventlog.TypeCurrentMemberAssignment, eventlog.TypeTargetAssignmentMember, eventlog.TypeTargetAssignment,
		eventlog.TypeGroupConfig}
	var keys []eventlog.Key
	for k, v := range last {
		if v != nil {
			keys = append(keys, k)
		}
	}
	sort.Slice(keys, func(i, j int) bool {
		a, b := slices.Index(order, keys[i].Type), slices.Index(order, keys[j].Type)
		return a < b || a == b && keys[i].Member < keys[j].Member
	})
	g := streams.NewGroup(group)
	for _, k := range keys {
		if err := g.Apply(eventlog.Record{Key: k, Value: last[k]}); err != nil {
			t.Fatalf("hydrating: %v", err)
		}
	}
	return g
}

// describe compares the descriptions.
func (w *world) describe() {
	w.t.Helper()
	req := kmsg.NewPtrStreamsGroupDescribeRequest()
	req.Version, req.Groups = 1, []string{group}
	_, body := w.request(req, "admin", "/127.0.0.1")
	theirs := kmsg.NewPtrStreamsGroupDescribeResponse()
	theirs.Version = 1
	if err := theirs.ReadFrom(body); err != nil || len(theirs.Groups) != 1 {
		w.fail("description of the oracle: %v", err)
	}
	if theirs.Groups[0].ErrorCode != 0 {
		if w.g.Exists() {
			w.fail("the oracle knows no group")
		}
		return
	}
	ours := kmsg.NewPtrStreamsGroupDescribeResponse()
	ours.Version, ours.Groups = 1, []kmsg.StreamsGroupDescribeResponseGroup{w.g.Describe(w.env(1, "", ""))}
	again := kmsg.NewPtrStreamsGroupDescribeResponse()
	again.Version = 1
	if err := again.ReadFrom(ours.AppendTo(nil)); err != nil {
		w.fail("our description: %v", err)
	}
	maskUndecided(theirs, again)
	w.compare("description", canonicalDescription(theirs), canonicalDescription(again))
}

// deleteGroup deletes the group, or is refused, on both sides.
func (w *world) deleteGroup() {
	w.t.Helper()
	w.note("delete")
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Version, req.Groups = 3, []string{group}
	a, body := w.request(req, "admin", "/127.0.0.1")
	theirs := kmsg.NewPtrDeleteGroupsResponse()
	theirs.Version = 3
	if err := theirs.ReadFrom(body); err != nil || len(theirs.Groups) != 1 {
		w.fail("answer of the oracle: %v", err)
	}
	code, message := int16(69), ""
	var recs, gone []eventlog.Record
	if w.g.Exists() {
		var err error
		code = 0
		if recs, err = w.g.Delete(); err != nil {
			code, message = err.(*streams.Error).Code, err.(*streams.Error).Message
		} else {
			gone = offsets.Tombstones(w.offsets, group)
		}
	}
	if theirs.Groups[0].ErrorCode != code {
		w.fail("delete: the oracle says %d %v, we %d %s", theirs.Groups[0].ErrorCode, theirs.Groups[0].ErrorMessage, code, message)
	}
	w.compare("records", canonicalRecords(a.Records), canonicalRecords(hexRecords(recs)))
	w.compare("records of offsets", offsetRecords(a.Records), offsetRecords(hexRecords(gone)))
	w.offsets.apply(gone, noProducer)
	w.apply(streams.Result{Records: recs})
	if !w.g.Exists() {
		w.timers = slices.DeleteFunc(w.timers, func(t timer) bool { return t.Key.Kind == streams.TimerInitial })
	}
}

func (w *world) compare(what string, theirs, ours any) {
	w.t.Helper()
	if a, b := text(theirs), text(ours); a != b {
		a, b = middle(a, b)
		w.fail("%s differ\n--- Kafka ---\n%s\n--- ours ---\n%s", what, a, b)
	}
}

// middle cuts off the lines that both have in common at their ends, but for a few.
func middle(a, b string) (string, string) {
	const around = 3
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	from := 0
	for from < len(x) && from < len(y) && x[from] == y[from] {
		from++
	}
	tail := 0
	for tail < len(x)-from && tail < len(y)-from && x[len(x)-1-tail] == y[len(y)-1-tail] {
		tail++
	}
	cut := func(l []string) string {
		return strings.Join(l[max(0, from-around):min(len(l), len(l)-tail+around)], "\n")
	}
	return cut(x), cut(y)
}

func text(v any) string {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		panic(err)
	}
	return string(b)
}
