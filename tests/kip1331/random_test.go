package kip1331

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	seedFlag      = flag.Uint64("seed", 0, "the seed of the only random sequence to play; 0: as many as -sequences says, of new seeds")
	sequencesFlag = flag.Int("sequences", 40, "how many random sequences to play")
)

// windowSafe is how long a sequence may take: the first window of a group lasts at least 24 s in both coordinators, and each draws its
// own end.
const windowSafe = 20 * time.Second

// randomSequences plays random requests to several groups, each with a plugin that fails in its own way.
func randomSequences(t *testing.T, w *world) {
	seeds := []uint64{*seedFlag}
	if *seedFlag == 0 {
		seeds = nil
		for range *sequencesFlag {
			seeds = append(seeds, rand.Uint64())
		}
	}
	for _, seed := range seeds {
		if !sequence(t, w, seed) {
			t.Fatalf("seed %d: play it again with -args -seed %d", seed, seed)
		}
	}
}

// player is a random sequence.
type player struct {
	*pair
	rng    *rand.Rand
	groups []string
	epochs map[string]int32 // of members, by group and member
	reborn map[string]bool  // groups that were deleted: Kafka may still count the window of their first life
}

var (
	setFaults    = []string{"ok", "twice", "late", "latefail", "transient", "permanent", "wrapped", "error", "bare", "mute", "throw", "nil"}
	getFaults    = append([]string{"null", "large"}, setFaults...)
	deleteFaults = append([]string{"null", "large"}, setFaults...)
	members      = []string{"a", "b"}
)

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func sequence(t *testing.T, w *world, seed uint64) bool {
	rng := rand.New(rand.NewPCG(seed, 1))
	p := &player{pair: w.pair(t), rng: rng, epochs: map[string]int32{}, reborn: map[string]bool{}}
	for range 1 + rng.IntN(3) {
		var clauses []string
		for operation, faults := range [][]string{setFaults, getFaults, deleteFaults} {
			for range rng.IntN(3) {
				clauses = append(clauses, fmt.Sprintf("%s:%s*%d", [...]string{"set", "get", "delete"}[operation], pick(rng, faults), 1+rng.IntN(2)))
			}
		}
		p.groups = append(p.groups, w.group("random", clauses...))
	}
	start := time.Now()
	for range 10 + rng.IntN(40) {
		p.step()
		if t.Failed() {
			return false
		}
		if time.Since(start) > windowSafe {
			t.Logf("seed %d ends early: the machine is slow", seed)
			break
		}
	}
	logs := w.readLogs(t)
	for _, g := range p.groups {
		p.pluginCalls(g)
		logs.same(p.pair, g)
	}
	return !t.Failed()
}

func (p *player) step() {
	g, m := pick(p.rng, p.groups), pick(p.rng, members)
	epoch, in := p.epochs[g+m]
	version := int16(min(1, p.rng.IntN(4)))
	switch n := p.rng.IntN(20); {
	case n < 4 && !in || n == 0:
		p.answered(g, m, p.heart(joining(version, g, m, 0)))
	case n < 5:
		p.answered(g, m, p.heart(heartbeat(version, g, m, epoch)))
	case n < 7:
		p.answered(g, m, p.heart(heartbeat(version, g, m, -1)))
	case n < 11:
		p.push(p.randomPush(g, m))
	case n < 14:
		asked := describing(1, true, p.some()...)
		if p.rng.IntN(4) == 0 {
			asked = describing(version, false, asked.Groups...)
		}
		p.describeAs(asked)
	case n < 17:
		for deleted, code := range p.delete(int16(p.rng.IntN(4)), p.some()...) {
			p.reborn[deleted] = p.reborn[deleted] || code == 0
		}
	case n < 19:
		if !in { // as nobody, where that is allowed: on an empty group
			m, epoch = "", -1
		}
		if _, exists := p.describe(g)[g]; exists && p.exists(g) { // else it would make a classic group, at the cluster
			p.commit(g, m, epoch, int64(p.rng.IntN(1000)))
		}
	default:
		p.committed(g)
	}
}

// heart is beat, but for what TestAgainstABroker/Differences/AGroupThatIsGoneIsForgotten is about.
func (p *player) heart(r *heartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse {
	theirs, ours := ask[*kmsg.StreamsGroupHeartbeatResponse](p.pair, r)
	if p.reborn[r.Group] && ours.TopologyDescriptionRequired && !theirs.TopologyDescriptionRequired {
		ours.TopologyDescriptionRequired = false
	}
	p.compare(r, theirs, ours)
	return theirs
}

// exists says whether there is a streams group.
func (p *player) exists(group string) bool {
	resp := same(p.pair, describing(1, false, group), sortDescribed)
	return resp.Groups[0].ErrorCode == 0
}

// answered notes what a member learned.
func (p *player) answered(group, member string, r *kmsg.StreamsGroupHeartbeatResponse) {
	switch {
	case r.ErrorCode == 0 && r.MemberEpoch > 0:
		p.epochs[group+member] = r.MemberEpoch
	case r.ErrorCode != 0 || r.MemberEpoch < 0:
		delete(p.epochs, group+member)
	}
}

// some are some of the groups, and groups that are not there.
func (p *player) some() []string {
	ids := slices.Clone(p.groups)
	p.rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	ids = ids[:1+p.rng.IntN(len(ids))]
	if p.rng.IntN(5) == 0 {
		ids = append(ids, "nobody")
	}
	return ids
}

func (p *player) randomPush(group, member string) *pushRequest {
	r := pushing(group, member, 0)
	nodes := r.TopologyDescription.Subtopologies[0].Nodes
	nodes[p.rng.IntN(3)].Name = fmt.Sprint("n", p.rng.IntN(1000))
	switch p.rng.IntN(12) {
	case 0:
		r.MemberID = pick(p.rng, []string{"", "nobody"})
	case 1:
		r.TopologyEpoch = pick(p.rng, []int32{-2, -1, 1})
	case 2:
		nodes[p.rng.IntN(3)].NodeType = pick(p.rng, []int8{0, 1, 2, 3, 4})
	case 3:
		r.TopologyDescription.GlobalStores[0].Source.NodeType = pick(p.rng, []int8{0, 1, 2})
	}
	return r
}
