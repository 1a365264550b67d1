package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"streamkeeper/eventlog"
	"streamkeeper/plugin"
	"streamkeeper/shard"
	"streamkeeper/shard/offsets"
)

// convertedShards record the steps of conversions and answer what the test says; they are the cluster, too.
type convertedShards struct {
	*describedShards
	standing  shard.Standing
	committed []shard.CommittedOffset
	gone      bool             // at the beginning a member is there
	lost      bool             // the lease
	described int              // how often the end finds a description
	refuse    map[string]error // by step
}

func (s *convertedShards) Holds(string) bool { return !s.lost }
func (s *convertedShards) Standing(context.Context, string) (shard.Standing, error) {
	return s.standing, s.refuse["standing"]
}
func (s *convertedShards) BeginConversion(_ context.Context, group string, over bool) ([]shard.CommittedOffset, eventlog.Conversion, bool, error) {
	s.call("begin %s over=%v", group, over)
	c := s.standing.Conversion
	if c == eventlog.ConversionNone {
		if c = eventlog.ConversionBegun; over {
			c = eventlog.ConversionBegunOver
		}
	}
	return s.committed, c, !s.gone, s.refuse["begin"]
}
func (s *convertedShards) CancelConversion(_ context.Context, group string) (bool, error) {
	s.call("cancel %s", group)
	return true, s.refuse["cancel"]
}
func (s *convertedShards) FinishConversion(_ context.Context, group string) (bool, error) {
	s.call("finish %s", group)
	if s.described > 0 {
		s.described--
		return false, shard.ErrDescribed
	}
	return true, s.refuse["finish"]
}
func (s *convertedShards) Commit(_ context.Context, group string, list []ClassicOffset) error {
	var text []string
	for _, o := range list {
		text = append(text, fmt.Sprintf("%s/%x-%d@%d", o.Topic, o.TopicID[0], o.Partition, o.Offset))
	}
	s.call("commit %s %s", group, strings.Join(text, ","))
	return s.refuse["commit"]
}
func (s *convertedShards) TakeOver(_ context.Context, _ shard.Caller, _ int16, req *kmsg.StreamsGroupHeartbeatRequest, committed []shard.CommittedOffset) (shard.HeartbeatResult, error) {
	s.call("take over %s %d", req.Group, len(committed))
	resp := kmsg.NewPtrStreamsGroupHeartbeatResponse()
	return shard.HeartbeatResult{Response: resp}, s.refuse["take over"]
}
func (s *convertedShards) Hold(_ context.Context, group string) (HeldGroup, error) {
	s.call("hold %s", group)
	return s, s.refuse["hold"]
}
func (s *convertedShards) Offsets(context.Context) ([]shard.CommittedOffset, error) {
	return s.committed, s.refuse["fetch"]
}
func (s *convertedShards) Still(context.Context) error { return s.refuse["still"] }
func (s *convertedShards) Leave(context.Context) error {
	s.call("leave")
	return nil
}
func (s *convertedShards) Delete(_ context.Context, group string) error {
	s.call("delete at the cluster %s", group)
	return s.refuse["delete"]
}

// converting is a world with a plugin whose group "g1" is empty, has a description and one offset.
type converting struct {
	*describing
	t     *testing.T
	steps *convertedShards
}

// busy makes an attempt that lasts as long as the test.
func (c *converting) busy() {
	leave, _ := c.conversions.enter(c.now, "g1")
	c.t.Cleanup(leave)
}

func newConverting(t *testing.T) *converting {
	t.Helper()
	d := newDescribing(t)
	c := &converting{describing: d, t: t, steps: &convertedShards{
		describedShards: d.shards, standing: shard.Standing{Exists: true, Stored: 0}, refuse: map[string]error{},
		committed: []shard.CommittedOffset{{Topic: "in", Partition: 1, OffsetCommit: eventlog.OffsetCommit{Offset: 42}}},
	}}
	c.conversions = newConversions(&Conversions{Shards: c.steps, Cluster: c.steps})
	return c
}

// join returns the code and the member id of an answer, and the steps that were taken.
func (c *converting) join(t *testing.T, member string) string {
	t.Helper()
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version, r.Group, r.MemberID = 6, "g1", member
	c.shards.mu.Lock()
	c.shards.calls = nil
	c.shards.mu.Unlock()
	c.plugin.mu.Lock()
	c.plugin.calls = nil
	c.plugin.mu.Unlock()
	resp := c.JoinGroup(t.Context(), Caller{}, r)
	if resp.Protocol == nil || *resp.Protocol != "" || resp.Generation != -1 {
		t.Errorf("protocol %v, generation %d", resp.Protocol, resp.Generation)
	}
	steps := slices.DeleteFunc(slices.Clone(c.shards.calls), func(s string) bool { return strings.HasPrefix(s, "barrier") })
	return strings.TrimSpace(fmt.Sprintf("%d %q %s %s", resp.ErrorCode, resp.MemberID, strings.Join(c.plugin.calls, "; "), strings.Join(steps, "; ")))
}

// Each row: what a classic member is told, and the steps that were taken; the plugin's come first.
func TestClassicJoins(t *testing.T) {
	const described = "delete g1 mark g1; deleted g1; "
	for _, row := range []struct {
		name    string
		prepare func(*converting)
		member  string
		want    string
	}{
		{"an empty group", func(*converting) {}, "", `16 "" ` + described + "begin g1 over=false; commit g1 in/1-1@42; finish g1"},
		{"without a description", func(c *converting) { c.steps.standing.Stored = eventlog.EpochNone }, "", `16 ""  begin g1 over=false; commit g1 in/1-1@42; finish g1`},
		{"without a plugin", func(c *converting) { c.descriptions = nil }, "", `16 ""  begin g1 over=false; commit g1 in/1-1@42; finish g1`},
		{"without offsets", func(c *converting) { c.steps.committed = nil }, "", `16 "" ` + described + "begin g1 over=false; finish g1"},
		{"the cluster has an empty group", func(c *converting) { c.foreign.kind = "classic" }, "", `16 "" ` + described + "begin g1 over=true; commit g1 in/1-1@42; finish g1"},
		{"a member from elsewhere", func(*converting) {}, "m", `25 "m"`},
		{"a group with members", func(c *converting) { c.steps.standing.Members = 1 }, "m", `23 ""`},
		{"a group that is gone", func(c *converting) { c.steps.standing.Exists = false }, "", `16 ""`},
		{"conversions are off", func(c *converting) { c.conversions = nil }, "", `23 ""`},
		{"the shard moved", func(c *converting) { c.steps.refuse["standing"] = shard.ErrNotOwner }, "", `16 ""`},
		{"a member came before the description went", func(c *converting) { c.shards.busy = true }, "", `27 ""  mark g1`},
		{"a member came after that", func(c *converting) { c.steps.gone = true }, "", `27 "" ` + described + "begin g1 over=false"},
		{"the cluster has a live group", func(c *converting) { c.foreign.kind, c.foreign.members = "classic", true }, "", `23 "" delete g1 mark g1; deleted g1`},
		{"the cluster can't be asked", func(c *converting) { c.foreign.err = errors.New("away") }, "", `27 "" delete g1 mark g1; deleted g1`},
		{"an open transaction", func(c *converting) { c.steps.refuse["begin"] = shard.ErrUnsettled }, "", `27 "" ` + described + "begin g1 over=false"},
		{"too many offsets", func(c *converting) { c.steps.refuse["begin"] = shard.ErrTooManyOffsets }, "", `27 "" ` + described + "begin g1 over=false"},
		{"the mark has no outcome", func(c *converting) { c.steps.refuse["begin"] = eventlog.ErrOutcomeUnknown }, "", `15 "" ` + described + "begin g1 over=false"},
		{"the lease is over", func(c *converting) { c.steps.lost = true }, "", `16 "" ` + described + "begin g1 over=false"}, // frozen: the next owner settles it
		{"the cluster refuses an offset", func(c *converting) { c.steps.refuse["commit"] = kerr.OffsetMetadataTooLarge }, "",
			`27 "" ` + described + "begin g1 over=false; commit g1 in/1-1@42; delete at the cluster g1; cancel g1"},
		{"the cluster refuses an offset of a group that it had", func(c *converting) {
			c.foreign.kind, c.steps.refuse["commit"] = "classic", kerr.UnknownMemberID
		}, "", `27 "" ` + described + "begin g1 over=true; commit g1 in/1-1@42; cancel g1"},
		{"and its copy can't be removed", func(c *converting) {
			c.steps.refuse["commit"], c.steps.refuse["delete"] = kerr.CoordinatorNotAvailable, errors.New("away")
		}, "", `27 "" ` + described + "begin g1 over=false; commit g1 in/1-1@42; delete at the cluster g1"},
		{"the offsets of an interrupted one can't be handed over", func(c *converting) { // the cluster may have those of the first attempt
			c.steps.standing = shard.Standing{Exists: true, Stored: eventlog.EpochNone, Conversion: eventlog.ConversionBegun}
			c.steps.committed[0].Topic = "gone"
		}, "", `27 ""  begin g1 over=false; delete at the cluster g1; cancel g1`},
		{"a push in between", func(c *converting) { c.steps.described = 1 }, "",
			`16 "" delete g1; delete g1 mark g1; deleted g1; begin g1 over=false; commit g1 in/1-1@42; finish g1; mark g1; deleted g1; begin g1 over=false; commit g1 in/1-1@42; finish g1`},
		{"an interrupted one goes on", func(c *converting) {
			c.steps.standing = shard.Standing{Exists: true, Stored: eventlog.EpochNone, Conversion: eventlog.ConversionBegun}
			c.foreign.kind = "classic" // our copy
		}, "", `16 ""  begin g1 over=false; commit g1 in/1-1@42; finish g1`},
		{"an interrupted one has only its end left", func(c *converting) {
			c.steps.standing = shard.Standing{Exists: true, Stored: eventlog.EpochNone, Conversion: eventlog.ConversionCopied}
		}, "", `16 ""  begin g1 over=false; finish g1`},
		{"the tombstones have no outcome", func(c *converting) { c.steps.refuse["finish"] = eventlog.ErrOutcomeUnknown }, "",
			`15 "" ` + described + "begin g1 over=false; commit g1 in/1-1@42; finish g1"},
		{"another attempt is under way", (*converting).busy, "", `27 ""`},
	} {
		c := newConverting(t)
		row.prepare(c)
		if got := c.join(t, row.member); got != row.want {
			t.Errorf("%s:\n%s\nwant\n%s", row.name, got, row.want)
		}
	}
}

// A failed attempt keeps joins away for a while, so that clients that repeat them many times a second do not repeat the steps.
func TestAFailedConversionIsNotRepeatedAtOnce(t *testing.T) {
	c := newConverting(t)
	c.steps.standing.Stored = eventlog.EpochNone
	c.steps.refuse["commit"] = kerr.NotEnoughReplicas
	if got := c.join(t, ""); !strings.HasPrefix(got, "27") || !strings.HasSuffix(got, "cancel g1") {
		t.Error(got)
	}
	delete(c.steps.refuse, "commit")
	if got := c.join(t, ""); got != `27 ""` {
		t.Errorf("at once: %s", got)
	}
	c.now = c.now.Add(conversionPause)
	if got := c.join(t, ""); !strings.HasPrefix(got, "16") {
		t.Errorf("after the pause: %s", got)
	}
}

// A plugin that does not delete throttles conversions with the entry that stands for deletions (epoch -2), as in Kafka.
func TestAPluginThatDoesNotDeleteThrottlesConversions(t *testing.T) {
	c := newConverting(t)
	c.backoff.Arm("g1", 0, c.now) // a member was asked lately: another epoch, replaced
	c.plugin.delete = func(string) *plugin.Future[plugin.Void] { return plugin.Failed[plugin.Void](errors.New("no")) }
	if got, want := c.join(t, ""), `27 "" delete g1 mark g1`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	c.now = c.now.Add(conversionPause)
	if got := c.join(t, ""); got != `27 ""` {
		t.Errorf("throttled: %s", got)
	}
	if e, ok := c.backoff.Entry("g1"); !ok || e.TopologyEpoch != eventlog.EpochUncertain {
		t.Errorf("entry %+v %v", e, ok)
	}
	c.plugin.delete = nil
	c.now = c.now.Add(40 * time.Second)
	if got := c.join(t, ""); !strings.HasPrefix(got, "16") {
		t.Errorf("when the window is over: %s", got)
	}
	if _, ok := c.backoff.Entry("g1"); ok {
		t.Error("the entry has outlived its group")
	}
}

// Offsets of a topic that is no more are left behind, but not on the word of a broker that has just started.
func TestOffsetsOfGoneTopicsAreLeftBehindLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock of the bubble is that of the questions to the brokers
		c := newConverting(t)
		c.steps.standing.Stored = eventlog.EpochNone
		c.steps.committed = []shard.CommittedOffset{
			{Topic: "gone", Partition: 0, OffsetCommit: eventlog.OffsetCommit{Offset: 1}},
			{Topic: "in", Partition: 0, OffsetCommit: eventlog.OffsetCommit{Offset: 2, TopicID: [16]byte{1}}},
			{Topic: "in", Partition: 1, OffsetCommit: eventlog.OffsetCommit{Offset: 3, TopicID: [16]byte{9}}}, // of an earlier topic of the name
			{Topic: "in", Partition: 7, OffsetCommit: eventlog.OffsetCommit{Offset: 4}},
		}
		if got, want := c.join(t, ""), `27 ""  begin g1 over=false; cancel g1`; got != want { // nothing was sent that could be deleted
			t.Errorf("%s, want %s", got, want)
		}
		c.now = c.now.Add(missingTopicsFor)
		if got, want := c.join(t, ""), `16 ""  begin g1 over=false; commit g1 in/1-0@2; finish g1`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// A frozen group that can't be taken back is counted as a failure and left alone for a while: each heartbeat of its members meets the mark.
func TestAGroupThatStaysFrozenIsNotTriedAtOnce(t *testing.T) {
	for _, step := range []string{"delete", "cancel"} {
		t.Run(step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConverting(t)
				c.steps.standing = shard.Standing{Exists: true, Stored: eventlog.EpochNone, Conversion: eventlog.ConversionBegun}
				c.steps.refuse[step] = errors.New("away")
				settle := func() int {
					for range 5 {
						c.SettleConversion("g1")
						synctest.Wait()
					}
					c.shards.mu.Lock()
					defer c.shards.mu.Unlock()
					defer func() { c.shards.calls = nil }()
					return len(slices.DeleteFunc(slices.Clone(c.shards.calls), func(s string) bool { return !strings.HasPrefix(s, "delete at") }))
				}
				if n := settle(); n != 1 {
					t.Errorf("%d attempts at once", n)
				}
				if n := c.ConversionStats().Failed; n != 1 {
					t.Errorf("%d failures are counted, want 1", n)
				}
				delete(c.steps.refuse, step)
				c.now = c.now.Add(conversionPause)
				if n := settle(); n == 0 {
					t.Error("not tried again after the pause")
				}
				if n := c.ConversionStats().Failed; n != 1 {
					t.Errorf("a success is counted as a failure: %d", n)
				}
			})
		})
	}
}

// What counts is for how long topics are missing without a break, not when they were missing the first time.
func TestTopicsThatWereMissingBeforeAreWaitedForAgain(t *testing.T) {
	for name, between := range map[string]func(c *converting){
		"they were there in between": func(c *converting) {
			c.cluster.topic("out", 2, 1)
			c.steps.refuse["commit"] = kerr.NotEnoughReplicas
			c.now = c.now.Add(conversionPause)
			if got := c.join(c.t, ""); !strings.Contains(got, "commit") {
				c.t.Error(got)
			}
			delete(c.steps.refuse, "commit")
			c.cluster.set(func() { delete(c.cluster.topics, "out") })
			for range 2 * topicMissesMax { // until that is known, too
				if err := c.topics.Refresh(c.t.Context(), []string{"out"}); err != nil {
					c.t.Error(err)
				}
			}
			c.now = c.now.Add(missingTopicsFor)
		},
		"nobody looked for long": func(c *converting) { c.now = c.now.Add(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConverting(t)
				c.steps.standing.Stored = eventlog.EpochNone
				c.steps.committed = append(c.steps.committed, shard.CommittedOffset{Topic: "out", OffsetCommit: eventlog.OffsetCommit{Offset: 1}})
				if got := c.join(t, ""); !strings.HasPrefix(got, "27") {
					t.Error(got)
				}
				between(c)
				if got := c.join(t, ""); !strings.HasPrefix(got, "27") || strings.Contains(got, "commit") {
					t.Errorf("left behind at the first look: %s", got)
				}
				c.now = c.now.Add(missingTopicsFor)
				if got, want := c.join(t, ""), `16 ""  begin g1 over=false; commit g1 in/1-1@42; finish g1`; got != want {
					t.Errorf("%s, want %s", got, want)
				}
			})
		})
	}
}

// Topics that some broker knows, or that the cluster does not let us see, keep their offsets however long one broker says that they are not there.
func TestOffsetsOfTopicsThatMayExistAreNotLeftBehind(t *testing.T) {
	for name, prepare := range map[string]func(severalBrokers){
		"a broker is behind":                        func(b severalBrokers) { delete(b[1].topics, "in") },
		"a broker does not know its new partitions": func(b severalBrokers) { b[1].topic("in", 1, 1) },
		"it may not be seen": func(b severalBrokers) {
			for _, m := range b {
				hidden := m.topics["in"]
				hidden.ErrorCode, hidden.Partitions = kerr.TopicAuthorizationFailed.Code, nil
				m.topics["in"] = hidden
			}
		},
		"a broker does not answer": func(b severalBrokers) { delete(b[1].topics, "in"); b[3].fail = errors.New("down") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConverting(t)
				c.steps.standing.Stored = eventlog.EpochNone
				brokers := newBrokers(1, 2, 3)
				for _, b := range brokers {
					b.topic("in", 1, 2)
				}
				prepare(brokers)
				c.topics = brokers.topics(nil)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); c.topics.Run(ctx) }()
				defer func() { cancel(); <-done }()
				for range 5 {
					if got := c.join(t, ""); !strings.HasPrefix(got, "27") || strings.Contains(got, "finish") {
						t.Errorf("left behind: %s", got)
					}
					c.now = c.now.Add(missingTopicsFor)
				}
			})
		})
	}
}

// While the offsets are on their way nobody can join the group, delete it or change its offsets; all of it can be read.
func TestAGroupOnItsWayIsFrozen(t *testing.T) {
	convertWorld(t, -1, -1, func(w *conversionWorld) {
		l := w.start(1)
		defer l.stop()
		l.fill()
		asked := false
		l.between = func() {
			if asked {
				return
			}
			asked = true
			if code := l.beat(0); code != codeLoading {
				w.t.Errorf("a streams member: code %d", code)
			}
			commit := offsets.Commit{Group: "g", Version: 9, Retention: -1, Topics: []offsets.CommitTopic{{Name: "in", Partitions: []offsets.CommitPartition{{Offset: 7}}}}}
			if _, err := l.host.Commit(w.t.Context(), commit, "", -1, nil); !errors.Is(err, shard.ErrConverting) {
				w.t.Errorf("an administrator's commit: %v", err)
			}
			remove := kmsg.NewPtrOffsetDeleteRequest()
			remove.Group = "g"
			if _, err := l.host.DeleteOffsets(w.t.Context(), remove, nil); !errors.Is(err, shard.ErrConverting) {
				w.t.Errorf("a deletion of offsets: %v", err)
			}
			del := kmsg.NewPtrDeleteGroupsRequest()
			del.Groups = []string{"g"}
			if code := l.service.DeleteGroups(w.t.Context(), Caller{}, del).Groups[0].ErrorCode; code != codeLoading {
				w.t.Errorf("a deletion: code %d", code)
			}
			r := kmsg.NewPtrJoinGroupRequest()
			r.Group = "g"
			if code := l.service.JoinGroup(w.t.Context(), Caller{}, r).ErrorCode; code != codeRebalance {
				w.t.Errorf("another classic member: code %d", code)
			}
			if err := l.complete(l.ours()); err != nil {
				w.t.Errorf("a fetch: %v", err)
			}
		}
		if code := l.join(); code != codeNotCoordinator || !asked {
			w.t.Errorf("code %d, asked %v", code, asked)
		}
		if err := l.complete(l.atCluster()); err != nil {
			w.t.Errorf("the cluster has %v", err)
		}
	})
}

func TestUpstreamClassicGroupsTakeOffsets(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, c := range []struct {
		name    string
		version *kversion.Versions
	}{{"newest", nil}, {"3.9", kversion.V3_9_0()}, {"2.8", kversion.V2_8_0()}} {
		t.Run(c.name, func(t *testing.T) {
			opts := []kfake.Opt{kfake.NumBrokers(3), kfake.SeedTopics(3, "a", "b")}
			if c.version != nil {
				opts = append(opts, kfake.MaxVersions(c.version))
			}
			cluster, err := kfake.NewCluster(opts...)
			if err != nil {
				t.Fatal(err)
			}
			defer cluster.Close()
			cl, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			admin := kadm.NewClient(cl)
			described, err := admin.ListTopics(ctx, "a", "b")
			if err != nil {
				t.Fatal(err)
			}
			offset := func(topic string, p int32, at int64) ClassicOffset {
				return ClassicOffset{TopicID: [16]byte(described[topic].ID), CommittedOffset: shard.CommittedOffset{
					Topic: topic, Partition: p, OffsetCommit: eventlog.OffsetCommit{Offset: at, LeaderEpoch: -1, Metadata: fmt.Sprint("m", p)}}}
			}
			u := UpstreamClassicGroups{Client: cl}
			want := []ClassicOffset{offset("a", 0, 5), offset("a", 2, 6), offset("b", 1, 7)}
			if err := u.Commit(ctx, "g", want); err != nil {
				t.Fatal(err)
			}
			got, err := admin.FetchOffsets(ctx, "g")
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range want {
				if f, ok := got.Lookup(o.Topic, o.Partition); !ok || f.At != o.Offset || f.Metadata != o.Metadata {
					t.Errorf("%s-%d: %+v", o.Topic, o.Partition, f)
				}
			}
			if err := u.Commit(ctx, "g", []ClassicOffset{offset("a", 0, 9), offset("a", 99, 1)}); err == nil {
				t.Error("a commit of which a part was refused counts as done")
			}
			for range 2 { // the second time it is gone
				if err := u.Delete(ctx, "g"); err != nil {
					t.Error(err)
				}
			}
			if got, err := admin.FetchOffsets(ctx, "g"); err == nil && len(got) > 0 {
				t.Errorf("after the deletion: %v", got)
			}
		})
	}
}
