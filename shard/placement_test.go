package shard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"streamkeeper/eventlog"
)

// owners are who has each partition before a placement; nowhere: nobody.
func owners(n int32, seats []seat) []int {
	p := placing{seats: seats, at: make([]int, n), was: make([]int, n), load: make([]int, len(seats))}
	p.keep()
	return p.at
}

// movedBy counts the partitions that an owner who may keep them loses by a placement.
func movedBy(n int32, seats []seat, out [][]int32) (moved int) {
	was := owners(n, seats)
	for s, ps := range out {
		for _, p := range ps {
			if was[p] != nowhere && was[p] != s {
				moved++
			}
		}
	}
	return moved
}

// mustMove is how many have to move for an even placement where nobody declines anything: each seat keeps its share, and those that have most may have one more
// where the shares are not equal.
func mustMove(n int32, seats []seat) (moved int) {
	load := make([]int, len(seats))
	for _, s := range owners(n, seats) {
		if s != nowhere {
			load[s]++
		}
	}
	slices.SortFunc(load, func(a, b int) int { return cmp.Compare(b, a) })
	for i, l := range load {
		share := int(n) / len(seats)
		if i < int(n)%len(seats) {
			share++
		}
		moved += max(0, l-share)
	}
	return moved
}

// TestPlacement: whatever members own and decline, every partition has one seat, nobody has what he declines where another does not, it is as even as
// that allows, no more moves than must where nobody declines anything, and a second placement of the outcome moves nothing.
func TestPlacement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int32Range(0, 12).Draw(t, "partitions")
		seats := make([]seat, rapid.IntRange(1, 5).Draw(t, "members"))
		subset := func(label string) (ps []int32) {
			for p := range n {
				if rapid.Bool().Draw(t, fmt.Sprintf("%s %d", label, p)) {
					ps = append(ps, p)
				}
			}
			return ps
		}
		for s := range seats {
			seats[s] = seat{owns: subset("owns"), round: rapid.Int32Range(0, 3).Draw(t, "round"), declines: map[int32]bool{}}
		}
		declining := rapid.Bool().Draw(t, "declining")
		for s := range seats {
			for p := range n {
				seats[s].declines[p] = declining && rapid.Bool().Draw(t, fmt.Sprintf("%d declines %d", s, p))
			}
		}
		out := place(n, seats)
		if now, must := movedBy(n, seats, out), mustMove(n, seats); !declining && now != must {
			t.Fatalf("%d partitions move, and %d had to: %v", now, must, out)
		}
		count := map[int32]int{}
		for s, ps := range out {
			for _, p := range ps {
				count[p]++
				able := slices.ContainsFunc(seats, func(o seat) bool { return !o.declines[p] })
				if able && seats[s].declines[p] {
					t.Fatalf("member %d has partition %d, which it declines: %v", s, p, out)
				}
				for o := range seats { // what can simply be moved would have been
					if len(out[o])+2 <= len(ps) && !seats[o].declines[p] {
						t.Fatalf("member %d has %d and member %d has %d, and could have partition %d: %v", s, len(ps), o, len(out[o]), p, out)
					}
				}
			}
		}
		for p := range n {
			if count[p] != 1 {
				t.Fatalf("partition %d has %d seats: %v", p, count[p], out)
			}
		}
		for s := range seats {
			seats[s].owns, seats[s].round = out[s], 4
		}
		if again := place(n, seats); !slices.EqualFunc(again, out, slices.Equal[[]int32]) {
			t.Fatalf("placed again: %v, before: %v", again, out)
		}
	})
}

// TestPlacementOverAThird: the first can give what it has too much of only to the second, which gives something else to the third.
func TestPlacementOverAThird(t *testing.T) {
	never := func(ps ...int32) map[int32]bool {
		m := map[int32]bool{}
		for _, p := range ps {
			m[p] = true
		}
		return m
	}
	out := place(6, []seat{
		{owns: []int32{0, 1, 2, 3}, declines: never()},
		{owns: []int32{4, 5}, declines: never()},
		{declines: never(0, 1, 2, 3)},
	})
	for s, ps := range out {
		if len(ps) != 2 {
			t.Errorf("member %d has %v, want two each: %v", s, ps, out)
		}
	}
}

// installation is the ownership group of a few replicas, as the leaders of its joins place partitions, in the two rounds of the cooperative protocol.
type installation struct {
	t          fataler
	n          int32
	members    map[string][]int32 // what each has
	generation int32
	moved      int // partitions that somebody who is still there had to give up, in the last rebalance
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

const placedTopic = "log"

func newInstallation(t fataler, n int32) *installation {
	return &installation{t: t, n: n, members: map[string][]int32{}}
}

func (i *installation) join(id string)  { i.members[id] = nil }
func (i *installation) leave(id string) { delete(i.members, id) }

// older is the placement of replicas before this one.
func older() kgo.ConsumerBalancerBalance {
	return kgo.CooperativeStickyBalancer().(kgo.ConsumerBalancerBalance)
}

// newer is the one of this version.
func newer() kgo.ConsumerBalancerBalance {
	return newDecliningBalancer(placedTopic, func() map[int32]string { return nil })
}

// rebalance has a leader place partitions until nobody has to give anything up.
func (i *installation) rebalance(leader kgo.ConsumerBalancerBalance) {
	i.t.Helper()
	i.moved = 0
	for round := 0; ; round++ {
		plan := i.plan(leader)
		given := 0
		for id, had := range i.members {
			for _, p := range had {
				if !slices.Contains(plan[id], p) {
					given++
				}
			}
			i.members[id] = plan[id]
		}
		i.generation++
		i.moved += given
		if given == 0 {
			break
		}
		if round > 0 {
			i.t.Fatalf("%d partitions are given up in round %d", given, round+1)
		}
	}
	var all []int32
	for _, ps := range i.members {
		all = append(all, ps...)
		if share := int(i.n) / len(i.members); len(ps) < share || len(ps) > share+1 {
			i.t.Fatalf("it is not even: %v", i.members)
		}
	}
	if slices.Sort(all); len(all) != int(i.n) || len(slices.Compact(all)) != int(i.n) {
		i.t.Fatalf("some are with nobody, or with two: %v", i.members)
	}
}

// plan is what a leader makes of the members' words.
func (i *installation) plan(leader kgo.ConsumerBalancerBalance) map[string][]int32 {
	i.t.Helper()
	var said []kmsg.JoinGroupResponseMember
	for _, id := range slices.Sorted(maps.Keys(i.members)) {
		m := kmsg.NewJoinGroupResponseMember()
		m.MemberID = id
		m.ProtocolMetadata = kgo.CooperativeStickyBalancer().JoinGroupMetadata([]string{placedTopic}, map[string][]int32{placedTopic: i.members[id]}, i.generation)
		said = append(said, m)
	}
	members, err := kgo.NewConsumerBalancer(leader, said)
	if err != nil {
		i.t.Fatalf("%v", err)
	}
	plan := map[string][]int32{}
	for _, a := range leader.Balance(members, map[string]int32{placedTopic: i.n}).IntoSyncAssignment() {
		topics, err := kgo.ParseConsumerSyncAssignment(a.MemberAssignment)
		if err != nil {
			i.t.Fatalf("%v", err)
		}
		plan[a.MemberID] = slices.Sorted(slices.Values(topics[placedTopic]))
	}
	return plan
}

// Replicas of two versions may lead in turn: what one has placed the other leaves alone, and neither moves more than the other would.
func TestPlacementsOfTwoVersions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i := newInstallation(t, rapid.Int32Range(1, 60).Draw(t, "partitions"))
		i.join("0")
		i.rebalance(newer())
		for step := range rapid.IntRange(1, 8).Draw(t, "steps") {
			present := slices.Sorted(maps.Keys(i.members))
			if id := fmt.Sprint(rapid.IntRange(0, 6).Draw(t, "who")); !slices.Contains(present, id) {
				i.join(id)
			} else if len(present) > 1 {
				i.leave(id)
			}
			leaders := []kgo.ConsumerBalancerBalance{older(), newer()}
			if rapid.Bool().Draw(t, "the newer leads") {
				slices.Reverse(leaders)
			}
			other := &installation{t: t, n: i.n, members: maps.Clone(i.members), generation: i.generation}
			other.rebalance(leaders[1])
			i.rebalance(leaders[0])
			if i.moved != other.moved {
				t.Fatalf("step %d: one moves %d partitions, the other %d", step, i.moved, other.moved)
			}
			for _, leader := range leaders {
				if i.rebalance(leader); i.moved != 0 {
					t.Fatalf("step %d: %d partitions move although nobody came or went", step, i.moved)
				}
			}
		}
	})
}

// TestPlacementOfAlikeNames measures how many of 30 groups with names that differ in a number come to each of three replicas, after each of them was stopped
// and came back, twice. By the library's placement, which takes and gives the last partitions of a replica, one has up to 19 of them; evenly it would be ten.
func TestPlacementOfAlikeNames(t *testing.T) {
	const partitions, groups, worst = 50, 30, 14
	names := map[string]func(n int) string{
		"app-1":            func(n int) string { return fmt.Sprintf("app-%d", n+1) },
		"app-01":           func(n int) string { return fmt.Sprintf("app-%02d", n+1) },
		"orders.v1":        func(n int) string { return fmt.Sprintf("orders.v%d", n+1) },
		"team1-enrichment": func(n int) string { return fmt.Sprintf("team%d-enrichment", n+1) },
		"a-app":            func(n int) string { return string(rune('a'+n%26)) + "-app" + []string{"", "s"}[n/26] },
		"app-a":            func(n int) string { return "app-" + []string{"", "z"}[n/26] + string(rune('a'+n%26)) },
		"svc-001-prod":     func(n int) string { return fmt.Sprintf("svc-%03d-prod", n+1) },
	}
	for version, leader := range map[string]func() kgo.ConsumerBalancerBalance{"library": older, "now": newer} {
		for _, history := range []string{"grown", "grown and restarted", "placed by the library, restarted"} {
			i := newInstallation(t, partitions)
			first := leader
			if history == "placed by the library, restarted" {
				first = older
			}
			for r := range 3 {
				i.join(fmt.Sprint(r))
				i.rebalance(first())
			}
			if history != "grown" {
				for range 2 {
					for r := range 3 {
						i.leave(fmt.Sprint(r))
						i.rebalance(leader())
						i.join(fmt.Sprint(r))
						i.rebalance(leader())
					}
				}
			}
			at := map[int32]string{}
			for id, ps := range i.members {
				for _, p := range ps {
					at[p] = id
				}
			}
			for _, family := range slices.Sorted(maps.Keys(names)) {
				load := map[string]int{}
				for n := range groups {
					load[at[eventlog.Partition(names[family](n), partitions)]]++
				}
				counts := slices.Sorted(maps.Values(load))
				t.Logf("%-8s %-34s %-18s %v", version, history, family, counts)
				if version == "now" && counts[len(counts)-1] > worst {
					t.Errorf("%s: of %d groups like %s one replica has %d: %v", history, groups, family, counts[len(counts)-1], i.members)
				}
			}
		}
	}
}

// TestPlacementOfManyPartitions: a leader that needs longer than a rebalance may take is thrown out, and the next one needs as long.
func TestPlacementOfManyPartitions(t *testing.T) {
	const n, replicas = 5_000, 10
	seats := make([]seat, replicas)
	for i := range seats {
		seats[i].declines = map[int32]bool{}
	}
	for q := range int32(n) {
		seats[0].owns = append(seats[0].owns, q)
	}
	begun := time.Now()
	out := place(n, seats)
	first := time.Since(begun)
	for i := range seats {
		seats[i].owns = out[i]
	}
	for q := range int32(n) { // one still reads, one can't read every other
		seats[0].declines[q] = true
		seats[1].declines[q] = q%2 == 0
	}
	seats = append(seats[:2], seats[4:]...)
	begun = time.Now()
	again := place(n, seats)
	t.Logf("%v, then %v", first, time.Since(begun))
	for s, ps := range out {
		if len(ps) != n/replicas {
			t.Errorf("member %d has %d partitions", s, len(ps))
		}
	}
	for s, ps := range again[1:] {
		if want := n / (len(seats) - 1); len(again[0]) > 0 || len(ps) < want || len(ps) > want+1 {
			t.Errorf("member %d has %d partitions, and the first %d", s+1, len(ps), len(again[0]))
		}
	}
}
