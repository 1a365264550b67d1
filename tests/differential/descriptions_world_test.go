package differential

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/cleanup"
	"streamkeeper/eventlog"
	"streamkeeper/internal/coordinator"
	"streamkeeper/plugin"
	"streamkeeper/projection"
	"streamkeeper/shard"
	"streamkeeper/shard/groupconfig"
	"streamkeeper/shard/offsets"
	"streamkeeper/shard/streams"
)

// describedWorld is a whole replica, from the requests down to the log, with a plugin and a cleanup cycle, beside Kafka's coordinator with
// a plugin that does the same; both in the virtual time of a bubble.
type describedWorld struct {
	t       *testing.T
	oracle  *oracle
	service *coordinator.Coordinator
	log     *eventlog.Fake
	plugin  *scripted
	members map[string]int32 // epochs, by group and member
	story   []string
	start   time.Time
}

const (
	checkInterval   = 10 * time.Minute
	offsetRetention = time.Hour
)

// quickGroups make an assignment at once.
var quickGroups = map[string]string{
	"group.streams.initial.rebalance.delay.ms": "0", "group.streams.assignment.interval.ms": "0", "group.streams.num.warmup.replicas": "0",
}

// described runs f in a world of its own.
func described(t *testing.T, withPlugin bool, f func(w *describedWorld)) {
	o := needOracle(t)
	synctest.Test(t, func(t *testing.T) {
		w := &describedWorld{t: t, oracle: o, plugin: &scripted{how: map[string]string{}, kept: map[string]*plugin.Description{}}, members: map[string]int32{}}
		defer w.run(withPlugin)()
		w.start = time.Now()
		configs := maps.Clone(quickGroups)
		configs["offsets.retention.minutes"] = fmt.Sprint(int(offsetRetention / time.Minute))
		configs["offsets.retention.check.interval.ms"] = fmt.Sprint(checkInterval.Milliseconds())
		w.do(map[string]any{"op": "init", "decode": false, "now": w.start.UnixMilli(), "plugin": withPlugin, "jitter": 0, "configs": configs})
		in := topic("in", 1, 1)
		h := hex.EncodeToString(in.ID[:])
		w.do(map[string]any{"op": "topics", "topics": []map[string]any{{"name": "in", "partitions": 1, "id": h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]}}})
		f(w)
	})
}

// run starts our side, and returns what ends it.
func (w *describedWorld) run(withPlugin bool) (end func()) {
	t := w.t
	quiet := slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	w.log = eventlog.NewFake(eventlog.FakeOptions{Partitions: 1, IdleInterval: 5 * time.Second})
	store, err := projection.Open(projection.Config{Dir: "data", FS: vfs.NewMem(), Identity: w.log.Identity(), DeleteRetention: 240 * time.Hour, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	groups, err := groupconfig.NewBroker(quickGroups)
	if err != nil {
		t.Fatal(err)
	}
	env := offsets.Env{MetadataBytesMax: offsets.MetadataMaxDefault, Retention: offsetRetention}
	topics := coordinator.NewTopics(coordinator.TopicsConfig{Client: oneTopic{}, Logger: quiet, Interval: time.Hour})
	host := shard.New(shard.Config{
		Log: w.log, Store: store, Membership: shard.NewFakeGroup(shard.FakeGroupOptions{Partitions: 1}).Member(1, func() time.Duration { return 0 }),
		Self:   eventlog.Ownership{Format: eventlog.OwnershipFormat, NodeID: 1, Address: "r1:9292", Instance: "1"},
		Topics: topics.Snapshot, Groups: groups, Offsets: env, Descriptions: withPlugin, Logger: quiet,
	})
	c := coordinator.Config{
		Node: coordinator.Node{ID: 1, Host: "r1", Port: 9292}, LogTopic: "__streams_groups", Shards: host, Replicas: store.Replicas, Topics: topics,
		RequiredTopics: func(string) ([]string, error) { return []string{"in"}, nil }, Assignor: streams.DefaultConfig().Assignor,
	}
	cycle := cleanup.Config{Interval: checkInterval, Logger: quiet, Shards: func() []cleanup.Shard {
		return []cleanup.Shard{&onlyShard{host: host, store: store, env: env}}
	}}
	if withPlugin {
		counters := new(plugin.Counters)
		traced, err := plugin.NewTraced(w.plugin, plugin.Config{Logger: quiet, Counters: counters})
		if err != nil {
			t.Fatal(err)
		}
		backoff := plugin.NewBackoff(func() float64 { return 0.5 }, 0) // the middle of the jitter: none
		c.Descriptions = &coordinator.Descriptions{Plugin: traced, Shards: host, Backoff: backoff}
		cycle.Descriptions = &cleanup.Descriptions{DeleteAll: traced.DeleteAll, Counters: counters, Backoff: backoff}
	}
	w.service = coordinator.New(c)
	wg.Go(func() { _ = w.log.Follow(ctx, store) })
	wg.Go(func() { _ = host.Run(ctx) })
	wg.Go(func() { topics.Run(ctx) })
	for !host.Owns(0) {
		time.Sleep(100 * time.Millisecond) // virtual: until the shard is claimed
	}
	wg.Go(func() { _ = cleanup.New(cycle).Run(ctx) })
	synctest.Wait()
	return func() {
		w.service.Close()
		cancel()
		wg.Wait()
		_ = store.Close()
		w.log.Close()
	}
}

// oneTopic is a cluster that answers Metadata.
type oneTopic struct{}

func (oneTopic) Request(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
	req, ok := r.(*kmsg.MetadataRequest)
	if !ok {
		return nil, fmt.Errorf("request %T", r)
	}
	in := topic("in", 1, 1)
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = 12
	for _, asked := range req.Topics {
		part := kmsg.NewMetadataResponseTopicPartition()
		found := kmsg.NewMetadataResponseTopic()
		found.Topic, found.TopicID, found.Partitions = kmsg.StringPtr("in"), in.ID, []kmsg.MetadataResponseTopicPartition{part}
		if asked.Topic != nil && *asked.Topic != "in" {
			found = kmsg.NewMetadataResponseTopic()
			found.Topic, found.ErrorCode = asked.Topic, 3
		}
		resp.Topics = append(resp.Topics, found)
	}
	return resp, nil
}

// onlyShard is the shard as the cleanup cycle sees it.
type onlyShard struct {
	host  *shard.Host
	store *projection.Store
	env   offsets.Env
}

func (s *onlyShard) Partition() int32 { return 0 }
func (s *onlyShard) Candidates(ctx context.Context) iter.Seq2[string, error] {
	env := s.env
	env.Now = time.Now().UnixMilli()
	return cleanup.AllCandidates(ctx, s.store, 0, env)
}
func (s *onlyShard) Expire(ctx context.Context, groups []string) ([]shard.Judged, error) {
	return s.host.ExpireGroups(ctx, 0, groups)
}
func (s *onlyShard) Tenure() context.Context { return s.host.TenureOf(0) }
func (s *onlyShard) Described(ctx context.Context) iter.Seq2[string, error] {
	return cleanup.DescribedCandidates(ctx, s.store, 0)
}
func (s *onlyShard) MarkExpired(ctx context.Context, group string) (bool, error) {
	return s.host.MarkExpired(ctx, group)
}
func (s *onlyShard) DescriptionDeleted(ctx context.Context, group string) error {
	return s.host.DescriptionDeleted(ctx, group)
}

// scripted is a plugin that does what was said last, as the oracle's.
type scripted struct {
	mu    sync.Mutex
	how   map[string]string // by operation and group
	kept  map[string]*plugin.Description
	calls []string
}

func (p *scripted) Name() string { return "scripted" }

func act[T any](p *scripted, operation, group string, work func() T) *plugin.Future[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, operation+" "+group)
	how, text, _ := strings.Cut(p.how[operation+" "+group], ":")
	switch how {
	case "", "ok":
		return plugin.Completed(work())
	case "nothing":
		var none T
		return plugin.Completed(none)
	case "null":
		return nil
	case "permanent":
		return plugin.Failed[T](plugin.Permanent(text))
	case "throw":
		panic(text)
	}
	return plugin.Failed[T](errors.New(text))
}

func (p *scripted) Set(_ context.Context, group string, epoch int32, d *plugin.Description) *plugin.Future[plugin.Void] {
	return act(p, "set", group, func() plugin.Void { p.kept[group] = d; return plugin.Void{} })
}
func (p *scripted) Get(_ context.Context, group string, epoch int32) *plugin.Future[*plugin.Description] {
	return act(p, "get", group, func() *plugin.Description { return p.kept[group].Clone() })
}
func (p *scripted) Delete(_ context.Context, group string) *plugin.Future[plugin.Void] {
	return act(p, "delete", group, func() plugin.Void { delete(p.kept, group); return plugin.Void{} })
}
func (p *scripted) Close(context.Context) error { return nil }

// --- both sides ---

func (w *describedWorld) do(op map[string]any) answer {
	w.t.Helper()
	a, err := w.oracle.do(op)
	if err != nil {
		w.fatal("%v", err)
	}
	return a
}

func (w *describedWorld) note(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf("%v ", time.Since(w.start))+fmt.Sprintf(format, args...))
}

func (w *describedWorld) fatal(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\n--- story ---\n%s", fmt.Sprintf(format, args...), strings.Join(w.story, "\n"))
}

// script says what the plugins do from now on.
func (w *describedWorld) script(operation, group, how string) {
	w.note("%s of %s: %s", operation, group, how)
	w.do(map[string]any{"op": "plugin", operation: how, "group": group})
	w.plugin.mu.Lock()
	defer w.plugin.mu.Unlock()
	w.plugin.how[operation+" "+group] = how
}

// sleep lets time pass on both sides.
func (w *describedWorld) sleep(d time.Duration) {
	w.t.Helper()
	time.Sleep(d) // virtual time
	synctest.Wait()
	w.do(map[string]any{"op": "advance", "to": time.Now().UnixMilli()})
}

// ask sends a request to both sides.
func askBoth[R kmsg.Response](w *describedWorld, req kmsg.Request) (theirs, ours R) {
	w.t.Helper()
	ctx, who := context.Background(), coordinator.Caller{ClientID: "client", ClientHost: "/10.0.0.1"}
	var resp kmsg.Response
	switch r := req.(type) {
	case *kmsg.StreamsGroupHeartbeatRequest:
		resp = w.service.Heartbeat(ctx, who, r)
	case *kmsg.StreamsGroupDescribeRequest:
		resp = w.service.Describe(ctx, who, r)
	case *kmsg.StreamsGroupTopologyDescriptionUpdateRequest:
		resp = w.service.TopologyDescriptionUpdate(ctx, who, r)
	case *kmsg.DeleteGroupsRequest:
		resp = w.service.DeleteGroups(ctx, who, r)
	case *kmsg.OffsetCommitRequest:
		resp = w.service.OffsetCommit(ctx, who, r)
	default:
		w.fatal("request %T", req)
	}
	synctest.Wait()
	a := w.do(map[string]any{"op": "request", "api": req.Key(), "version": req.GetVersion(), "hex": hex.EncodeToString(req.AppendTo(nil)), "clientId": "client", "clientHost": "/10.0.0.1", "now": time.Now().UnixMilli()})
	if a.Pending {
		w.fatal("the oracle does not answer %T", req)
	}
	read := func(body []byte) R {
		r := req.ResponseKind()
		r.SetVersion(req.GetVersion())
		if err := r.ReadFrom(body); err != nil && !errors.Is(err, io.EOF) {
			w.fatal("%T: %v", r, err)
		}
		return r.(R)
	}
	body, err := hex.DecodeString(a.ResponseHex)
	if err != nil {
		w.fatal("%v", err)
	}
	theirs = read(body)
	w.note("%T v%d %.200s → %.300s", req, req.GetVersion(), text(req), text(theirs))
	return theirs, read(resp.AppendTo(nil)) // through its bytes
}

// same sends a request to both and compares the answers.
func sameBoth[R kmsg.Response](w *describedWorld, req kmsg.Request, canonical ...func(R)) R {
	w.t.Helper()
	theirs, ours := askBoth[R](w, req)
	for _, c := range canonical {
		c(theirs)
		c(ours)
	}
	if a, b := text(theirs), text(ours); a != b {
		a, b = middle(a, b)
		w.fatal("%T v%d differs\n--- Kafka ---\n%s\n--- ours ---\n%s", req, req.GetVersion(), a, b)
	}
	return theirs
}

// beat sends a heartbeat of a member, a join if it is in no group, and says whether it was asked for a description.
func (w *describedWorld) beat(version int16, g, m string) bool {
	w.t.Helper()
	req := beat(m, w.members[g+m])
	req.Version, req.Group = version, g
	if w.members[g+m] == 0 {
		p := pair{}
		req = p.join(m, topologyCases[0].subs...)
		req.Topology = topology(0, subtopology{SubtopologyID: "0", SourceTopics: []string{"in"}})
		req.Version, req.Group = version, g
	}
	resp := sameBoth[*kmsg.StreamsGroupHeartbeatResponse](w, req)
	w.learn(g, m, resp)
	return resp.TopologyDescriptionRequired
}

func (w *describedWorld) learn(g, m string, r *kmsg.StreamsGroupHeartbeatResponse) {
	switch {
	case r.ErrorCode == 0 && r.MemberEpoch > 0:
		w.members[g+m] = r.MemberEpoch
	case r.ErrorCode != 0 || r.MemberEpoch < 0:
		delete(w.members, g+m)
	}
}

func (w *describedWorld) leave(g, m string) {
	w.t.Helper()
	req := beat(m, -1)
	req.Group = g
	w.learn(g, m, sameBoth[*kmsg.StreamsGroupHeartbeatResponse](w, req))
}

func (w *describedWorld) push(g, m string) int16 {
	w.t.Helper()
	req := kmsg.NewPtrStreamsGroupTopologyDescriptionUpdateRequest()
	req.Group, req.MemberID = g, m
	req.TopologyDescription.Subtopologies = []kmsg.TopologyDescriptionSubtopology{{SubtopologyID: "0", Nodes: []kmsg.TopologyDescriptionNode{{Name: "n", NodeType: 1, SourceTopics: []string{"in"}}}}}
	return sameBoth[*kmsg.StreamsGroupTopologyDescriptionUpdateResponse](w, req).ErrorCode
}

// status describes the group; -1 if it is not there.
func (w *describedWorld) status(g string) int8 {
	w.t.Helper()
	req := kmsg.NewPtrStreamsGroupDescribeRequest()
	req.Version, req.Groups, req.IncludeTopologyDescription = 1, []string{g}, true
	resp := sameBoth(w, req, func(r *kmsg.StreamsGroupDescribeResponse) { *r = *canonicalDescription(r) })
	if resp.Groups[0].ErrorCode != 0 {
		return -1
	}
	return resp.Groups[0].TopologyDescriptionStatus
}

func (w *describedWorld) delete(version int16, g string) int16 {
	w.t.Helper()
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Version, req.Groups = version, []string{g}
	return sameBoth[*kmsg.DeleteGroupsResponse](w, req).Groups[0].ErrorCode
}

func (w *describedWorld) commit(g, m string) int16 {
	w.t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 9, g, m, w.members[g+m]
	part := kmsg.NewOffsetCommitRequestTopicPartition()
	part.Offset = 7
	in := kmsg.NewOffsetCommitRequestTopic()
	in.Topic, in.Partitions = "in", []kmsg.OffsetCommitRequestTopicPartition{part}
	req.Topics = []kmsg.OffsetCommitRequestTopic{in}
	return sameBoth[*kmsg.OffsetCommitResponse](w, req).Topics[0].Partitions[0].ErrorCode
}

// end compares the logs, record for record. Kafka writes a group's record again where an outcome changes nothing; we do not.
func (w *describedWorld) end() []string {
	w.t.Helper()
	var ours []logged
	for _, e := range w.log.Entries(0) {
		rec, err := eventlog.Decode(eventlog.Raw{Key: e.Key, Value: e.Value})
		if err != nil {
			w.fatal("%v", err)
		}
		if rec.Key.Type < eventlog.TypeOwnership {
			ours = append(ours, hexRecords([]eventlog.Record{rec})...)
		}
	}
	theirs, mine := w.lines(w.do(map[string]any{"op": "log"}).Log), w.lines(ours)
	if !slices.Equal(theirs, mine) {
		a, b := middle(strings.Join(theirs, "\n"), strings.Join(mine, "\n"))
		w.fatal("logs differ\n--- Kafka ---\n%s\n--- ours ---\n%s", a, b)
	}
	return theirs
}

// lines prints records, group by group: what groups do at the same moment has no order.
func (w *describedWorld) lines(list []logged) []string {
	byGroup, last := map[string][]string{}, map[string]string{}
	for _, l := range list {
		key, err := hex.DecodeString(l.KeyHex)
		if err != nil {
			w.fatal("%v", err)
		}
		raw, value := eventlog.Raw{Key: key}, "null"
		if l.ValueHex != nil {
			value = *l.ValueHex
			if raw.Value, err = hex.DecodeString(value); err != nil {
				w.fatal("%v", err)
			}
		}
		rec, err := eventlog.Decode(raw)
		if err != nil {
			w.fatal("%v", err)
		}
		says, err := json.Marshal(rec.Value)
		if err != nil {
			w.fatal("%v", err)
		}
		line := fmt.Sprintf("%s %s%s %s %s", rec.Key.Type, rec.Key.Member, rec.Key.Topic, says, value)
		if rec.Key.Type == eventlog.TypeGroup {
			if last[rec.Key.Group] == line {
				continue
			}
			last[rec.Key.Group] = line
		}
		byGroup[rec.Key.Group] = append(byGroup[rec.Key.Group], line)
	}
	var lines []string
	groups := make([]string, 0, len(byGroup))
	for g := range byGroup {
		groups = append(groups, g)
	}
	slices.Sort(groups)
	for _, g := range groups {
		lines = append(append(lines, "group "+g), byGroup[g]...)
	}
	return lines
}
