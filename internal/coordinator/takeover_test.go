package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"streamkeeper/eventlog"
	"streamkeeper/shard"
)

// Each row: what a streams member is told that joins an id which the cluster has a group of, and the steps that were taken.
func TestStreamsJoinsOfTheClustersGroups(t *testing.T) {
	const notStreams = "69 Group g1 is not a streams group."
	for _, row := range []struct {
		name    string
		prepare func(*converting)
		want    string
	}{
		{"none", func(c *converting) { c.foreign.kind = "" }, "0 heartbeat g1 v1"},
		{"an empty classic one", func(*converting) {}, "0 hold g1; take over g1 1; leave"},
		{"an empty one of another kind of client", func(c *converting) { c.foreign.kind = "connect" }, "0 hold g1; take over g1 1; leave"},
		{"a classic one with members", func(c *converting) { c.foreign.members = true }, notStreams},
		{"an empty consumer group", func(c *converting) { c.foreign.kind = "consumer" }, notStreams},
		{"an empty share group", func(c *converting) { c.foreign.kind = "share" }, notStreams},
		{"groups are not converted", func(c *converting) { c.conversions = nil }, notStreams},
		{"another replica holds it", func(c *converting) { c.foreign.kind, c.foreign.members = TakeOverProtocol, true }, "14"},
		{"another attempt is under way", (*converting).busy, "14"},
		{"a classic member was faster", func(c *converting) { c.steps.refuse["hold"] = ErrClassicMembers }, notStreams + " hold g1"},
		{"the cluster can't be joined", func(c *converting) { c.steps.refuse["hold"] = kerr.NotEnoughReplicas }, "14 hold g1"},
		{"an open transaction", func(c *converting) { c.steps.refuse["fetch"] = kerr.UnstableOffsetCommit }, "14 hold g1; leave"},
		{"the hold is lost", func(c *converting) { c.steps.refuse["still"] = errLetGo }, "14 hold g1; leave"},
		{"the shard moves", func(c *converting) { c.steps.refuse["take over"] = shard.ErrNotOwner }, "16 hold g1; take over g1 1; leave"},
		{"more offsets than one batch holds", func(c *converting) { c.steps.refuse["take over"] = shard.ErrTooManyOffsets },
			"69 Group g1 is not a streams group: the cluster behind this coordinator has a classic group of that name without members, and more committed " +
				"offsets than can be taken over at once. Delete some there, or use another application.id. hold g1; take over g1 1; leave"},
		{"owned by another replica", func(c *converting) {
			c.shards.owned[1], c.shards.owners[1] = false, owner(1000002, "other:1", c.now)
		}, "16"},
	} {
		c := newConverting(t)
		c.foreign.kind = "classic"
		row.prepare(c)
		resp := c.Heartbeat(t.Context(), Caller{}, join("g1"))
		text := ""
		if resp.ErrorMessage != nil {
			text = *resp.ErrorMessage
		}
		steps := slices.DeleteFunc(slices.Clone(c.shards.calls), func(s string) bool { return strings.HasPrefix(s, "barrier") })
		got := strings.Join(strings.Fields(fmt.Sprint(resp.ErrorCode, " ", text, " ", strings.Join(steps, "; "))), " ")
		if got != row.want {
			t.Errorf("%s:\n%s\nwant\n%s", row.name, got, row.want)
		}
	}
}

// What is left at the cluster of a group that was taken over goes before the group is converted back.
func TestATakenGroupIsConvertedBackWhenTheClustersCopyIsGone(t *testing.T) {
	c := newConverting(t)
	c.steps.standing = shard.Standing{Exists: true, Stored: eventlog.EpochNone, Conversion: eventlog.ConversionTaken}
	c.steps.refuse["delete"] = ErrClassicMembers
	c.foreign.kind, c.foreign.members = TakeOverProtocol, true // our hold of before a crash
	if got, want := c.join(t, ""), `27 ""  delete at the cluster g1`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	delete(c.steps.refuse, "delete")
	c.foreign.kind, c.foreign.members = "", false
	c.now = c.now.Add(conversionPause)
	if got, want := c.join(t, ""), `16 ""  delete at the cluster g1; cancel g1; begin g1 over=false; commit g1 in/1-1@42; finish g1`; got != want && !strings.HasPrefix(got, "16") {
		t.Errorf("%s, want %s", got, want)
	}
}

// A classic group of the cluster that is held lets no consumer in and takes no commit; it can be read, and is there again when it was left.
func TestClassicGroupsAreHeld(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, c := range []struct {
		name    string
		version *kversion.Versions
	}{{"newest", nil}, {"3.9", kversion.V3_9_0()}, {"2.8", kversion.V2_8_0()}} {
		t.Run(c.name, func(t *testing.T) {
			opts := []kfake.Opt{kfake.NumBrokers(3), kfake.SeedTopics(3, "a", "b"), kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"})}
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
			offsets := kadm.Offsets{}
			offsets.Add(kadm.Offset{Topic: "b", Partition: 1, At: 7, LeaderEpoch: -1, Metadata: "m"})
			offsets.Add(kadm.Offset{Topic: "a", Partition: 2, At: 0, LeaderEpoch: -1})
			if err := admin.CommitAllOffsets(ctx, "g", offsets); err != nil {
				t.Fatal(err)
			}
			u, groups := UpstreamClassicGroups{Client: cl}, NewUpstreamGroups(cl)
			held, err := u.Hold(ctx, "g")
			if err != nil {
				t.Fatal(err)
			}
			if kind, members, err := groups.Find(ctx, "g"); kind != TakeOverProtocol || !members || err != nil {
				t.Errorf("others see %q, members %v, %v", kind, members, err)
			}
			if err := admin.CommitAllOffsets(ctx, "g", offsets); !errors.Is(err, kerr.UnknownMemberID) {
				t.Errorf("a commit into a held group: %v", err)
			}
			if err := u.Delete(ctx, "g"); !errors.Is(err, ErrClassicMembers) {
				t.Errorf("a deletion of a held group: %v", err)
			}
			got, err := held.Offsets(ctx)
			if err != nil || len(got) != 2 || got[0].Topic != "a" || got[0].Offset != 0 || got[1].Partition != 1 || got[1].Offset != 7 || got[1].Metadata != "m" {
				t.Errorf("offsets %+v %v", got, err)
			}
			if err := held.Still(ctx); err != nil {
				t.Error(err)
			}
			if err := held.Leave(ctx); err != nil {
				t.Error(err)
			}
			if err := held.Still(ctx); !errors.Is(err, errLetGo) {
				t.Errorf("after leaving: %v", err)
			}
			if _, members, err := groups.Find(ctx, "g"); members || err != nil {
				t.Errorf("after leaving there are members %v, %v", members, err)
			}

			consumer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumerGroup("live"), kgo.ConsumeTopics("a"))
			if err != nil {
				t.Fatal(err)
			}
			defer consumer.Close()
			if _, err := cluster.WaitGroupStable(ctx, "live", 1); err != nil {
				t.Fatal(err)
			}
			if _, err := u.Hold(ctx, "live"); !errors.Is(err, ErrClassicMembers) {
				t.Errorf("a live group is held: %v", err)
			}
		})
	}
}
