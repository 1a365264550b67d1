package e2e

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/client"
	"streamkeeper/internal/kafkatest"
)

//go:embed testdata/upgrade-from
var upgradeFrom string

// upgradeFromCommits are the commits that the file names.
func upgradeFromCommits(t *testing.T) (commits []string) {
	t.Helper()
	for line := range strings.Lines(upgradeFrom) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			commits = append(commits, line)
		}
	}
	if len(commits) == 0 {
		t.Fatal("testdata/upgrade-from names no commit")
	}
	return commits
}

// TestRollingUpgrade: three replicas of an older build are replaced by today's one after the other, and then by the older ones again,
// under applications with state, standbys, configurations of their groups and topology descriptions. At each mixture groups of the classic
// protocol come over with their offsets, whichever version has their shard, and go back; and what goes from replica to replica does so between the
// versions, both ways. Nobody refuses a record, and no application has a rebalance.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	commits := upgradeFromCommits(t)
	if !*long {
		commits = commits[:1] // TestMixedVersions has the others, without applications
	}
	for _, commit := range commits {
		t.Run(commit, func(t *testing.T) { rollingUpgrade(t, commit) })
	}
}

// startOlder starts three replicas of a former commit.
func startOlder(t *testing.T, commit string, more ...string) (r *fleet, before string) {
	t.Helper()
	before, older := kafkatest.OlderBinary(t, commit)
	if older {
		t.Logf("from commit %s", commit)
	}
	r = newFleet(t, kafkatest.Shared(t, kafka44), 3, more...)
	for _, node := range r.nodes {
		r.replicas[node].Use(before)
		r.replicas[node].Start()
	}
	for _, node := range r.nodes {
		r.replicas[node].WaitReady()
	}
	r.waitSpread(r.nodes...)
	return r, before
}

// replace stops a replica and starts another version of it.
func (r *fleet) replace(what string, node int32, bin string) {
	r.t.Helper()
	r.replicas[node].Stop()
	r.noErrors(what, node)
	r.replicas[node].Use(bin)
	r.replicas[node].Start()
	r.replicas[node].WaitReady()
	r.waitSpread(r.nodes...)
}

// TestMixedVersions is TestRollingUpgrade for the other versions, with members that speak the protocol by themselves and tell each answer that an
// application would not have tried again after.
func TestMixedVersions(t *testing.T) {
	t.Parallel()
	for _, commit := range upgradeFromCommits(t)[1:] {
		t.Run(commit, func(t *testing.T) { mixedVersions(t, commit) })
	}
}

// mixes says that a mixture of versions is looked at once the node has been replaced: after the last one all are of one version.
func mixes(node int32, r *fleet) bool {
	return node == r.nodes[0] || *long && node != r.nodes[len(r.nodes)-1]
}

func mixedVersions(t *testing.T, commit string) {
	r, before := startOlder(t, commit, "--plugin", descriptions)
	name := "mixed-" + commit
	converted := newConverts(t, r, name)
	seekers := r.seekAs(name+"-owned", converted.in)
	r.during(seekers, "before", func() {})
	m := &mixture{t: t, r: r, name: name + "-errand", classic: converted}
	epochs := func() (all []string) {
		for _, s := range seekers {
			var d *client.GroupDescription
			kafkatest.Eventually(t, outcome, func() error { // a target for the member that joined
				if d = describe(t, r.bootstrap(), s.group); d.Epoch != d.AssignmentEpoch {
					return fmt.Errorf("%s is at %d, its target at %d", s.group, d.Epoch, d.AssignmentEpoch)
				}
				return nil
			})
			all = append(all, fmt.Sprintf("%s at %d, %d", s.group, d.Epoch, d.AssignmentEpoch))
		}
		return all
	}
	was := epochs()
	converted.comeOver("before")
	// Among the groups that are listed are those of the seekers, which are busy and described by nobody.
	for _, s := range seekers {
		m.others = append(m.others, s.group)
	}
	for _, version := range []struct{ name, bin string }{{"today's build", kafkatest.CurrentBinary(t)}, {"the older build", before}} {
		for _, node := range r.nodes {
			what := fmt.Sprintf("replica %d is replaced by %s", node, version.name)
			r.during(seekers, what, func() { r.replace(what, node, version.bin) })
			if !mixes(node, r) {
				continue
			}
			r.during(seekers, what+", and asked", func() { m.check(what) })
			converted.comeOver(what)
			converted.goBack(what)
		}
	}
	if now := epochs(); !slices.Equal(was, now) {
		t.Errorf("the groups were\n%s\nand are\n%s", strings.Join(was, "\n"), strings.Join(now, "\n"))
	}
	for _, node := range r.nodes {
		r.noErrors("at the end", node)
	}
}

func rollingUpgrade(t *testing.T, commit string) {
	r, before := startOlder(t, commit, "--plugin", descriptions)
	now := kafkatest.CurrentBinary(t)
	tr := startTroupe(t, r, "upgraded-"+commit)
	described := func(when string) {
		t.Helper()
		for _, w := range tr.all {
			kafkatest.Eventually(t, pushPatience, func() error {
				d := describeTopology(t, r.bootstrap(), w.p.group)
				if d.TopologyStatus != client.TopologyAvailable || len(d.TopologyDescription.Subtopologies) != 2 {
					return fmt.Errorf("%s: the description of %s is %s", when, w.p.group, d.TopologyStatus)
				}
				return nil
			})
		}
	}
	described("before")
	converted := newConverts(t, r, "converts-"+commit)
	converted.comeOver("before")
	m := &mixture{t: t, r: r, name: "errand-" + commit, classic: converted}
	for _, w := range tr.all {
		m.lasting = append(m.lasting, w.p.group)
	}

	for _, version := range []struct{ name, bin string }{{"today's build", now}, {"the older build", before}} {
		for _, node := range r.nodes {
			what := fmt.Sprintf("replica %d is replaced by %s", node, version.name)
			tr.during(what, func() { r.replace(what, node, version.bin) })
			described(what)
			if mixes(node, r) {
				tr.during(what+", and all are asked", func() { m.check(what) })
				converted.comeOver(what)
				converted.goBack(what)
			}
		}
	}
	tr.finish()
	for _, node := range r.nodes {
		r.noErrors("at the end", node)
	}
	checkFence(t, r.topic, readLog(t, r.cluster.Bootstrap(), r.topic))
}

// noErrors fails the test if a replica has logged an error since its last start: a record that it can't read, a claim that failed.
func (r *fleet) noErrors(when string, node int32) {
	r.t.Helper()
	for line := range strings.Lines(r.replicas[node].Output()) {
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, `"level":"ERROR"`) || strings.Contains(line, "handler panicked") {
			r.t.Errorf("%s: replica %d logged %s", when, node, line)
		}
	}
}

// converts are groups of the classic protocol that come over to the streams protocol, a few at a time, and stay.
type converts struct {
	t    *testing.T
	r    *fleet
	name string
	in   string
	adm  *kadm.Client
	all  []string // their ids, of those that are streams groups
	// first of all was made as number first+1
	first, made int
	// partitions of in
	partitions int
}

const convertsAtATime = 3 // of 8 shards: at most mixtures some are with either version

func newConverts(t *testing.T, r *fleet, name string) *converts {
	c := &converts{t: t, r: r, name: name, in: name + "-in", adm: kafkatest.Admin(t, r.bootstrap()), partitions: partitions}
	kafkatest.CreateTopics(t, r.cluster.Bootstrap(), partitions, c.in)
	load := kafkatest.NewLoad(t, r.cluster.Bootstrap(), c.in)
	load.Send(100)
	return c
}

// comeOver makes classic groups with offsets, has a member of each join with the streams protocol, and looks whether all groups that
// ever came over have their offsets.
func (c *converts) comeOver(when string) {
	c.t.Helper()
	for range convertsAtATime {
		c.made++
		group := fmt.Sprintf("%s-%d", c.name, c.made)
		var offsets kadm.Offsets
		for p := range int32(partitions) {
			offsets.Add(kadm.Offset{Topic: c.in, Partition: p, At: c.offset(c.made, p), LeaderEpoch: -1, Metadata: "classic"})
		}
		if err := c.adm.CommitAllOffsets(c.t.Context(), group, offsets); err != nil {
			c.t.Fatalf("%s: commit as classic group %s: %v", when, group, err)
		}
		c.join(when, group)
		c.all = append(c.all, group)
	}
	for i, group := range c.all {
		got := kafkatest.Committed(c.t, c.r.bootstrap(), group, c.in)
		for p := range int32(partitions) {
			if want := c.offset(c.first+i+1, p); got[p] != want {
				c.t.Errorf("%s: group %s has committed %v, and had %d of partition %d as a classic group", when, group, got, want, p)
			}
		}
		if d := describe(c.t, c.r.bootstrap(), group); d.Epoch == 0 {
			c.t.Errorf("%s: group %s is described as %+v", when, group, d)
		}
	}
}

func (c *converts) offset(n int, p int32) int64 { return int64(n)%5 + int64(p) + 1 }

// join has a member take the group over, and leave.
func (c *converts) join(when, group string) {
	c.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(c.r.bootstrap(), ",")...))
	if err != nil {
		c.t.Fatal(err)
	}
	defer cl.Close()
	m, err := client.NewMember(cl, client.MemberConfig{Group: group, Subtopologies: []client.Subtopology{{ID: "0", SourceTopics: []string{c.in}}}})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), outcome)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			c.t.Errorf("%s: the member of %s ended with %v", when, group, err)
		}
	}()
	kafkatest.Eventually(c.t, outcome, func() error {
		if n := len(m.Tasks().Active); n != c.partitions {
			return fmt.Errorf("%s: the member of %s has %d tasks", when, group, n)
		}
		return nil
	})
}
