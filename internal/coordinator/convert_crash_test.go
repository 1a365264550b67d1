package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/shard/offsets"
)

// Who comes first after the crash, and what must be so in the end.
var afterCrash = map[string]func(t *testing.T, l *life){
	"a classic member again": func(t *testing.T, l *life) {
		if code := l.join(); code != codeNotCoordinator {
			t.Errorf("the join ends with code %d", code)
		}
		if l.ours() != nil {
			t.Error("the group is still ours")
		}
		if err := l.complete(l.atCluster()); err != nil {
			t.Errorf("the cluster has %v", err)
		}
	},
	"a streams member": func(t *testing.T, l *life) {
		switch code := l.streamsJoin(); code {
		case 0:
			if err := l.complete(l.ours()); err != nil {
				t.Errorf("the streams group has %v", err)
			}
			l.settles()
		case codeNoGroup: // it is a classic group now
			if l.ours() != nil {
				t.Error("the group is still ours")
			}
			if err := l.complete(l.atCluster()); err != nil {
				t.Errorf("the cluster has %v", err)
			}
		default:
			t.Errorf("the join ends with code %d", code)
		}
	},
	"the cleanup cycle": func(t *testing.T, l *life) {
		for range 3 {
			if judged, err := l.host.ExpireGroups(t.Context(), l.host.Partition("g"), []string{"g"}); err != nil || judged[0].Err != nil {
				t.Error(judged, err)
			}
			time.Sleep(time.Minute) // of the bubble's clock
		}
		ours := l.ours()
		theirs := l.atCluster()
		if (ours == nil) == (theirs == nil) {
			t.Fatalf("ours %d offsets, the cluster's %d", len(ours), len(theirs))
		}
		if ours == nil {
			ours = theirs
		}
		if err := l.complete(ours); err != nil {
			t.Error(err)
		}
	},
}

// Whatever step of a conversion a process dies before or after, no offset is lost, and whoever comes next finds either the streams group
// or the classic group, with all offsets, and the other one not.
func TestKilledAtAnyPointAConversionEndsInOneOfTwoStates(t *testing.T) {
	for what, failing := range map[string]int{"it succeeds": -1, "the cluster refuses": 1} {
		var points []string
		convertWorld(t, -1, failing, func(w *conversionWorld) {
			l := w.start(1)
			defer l.stop()
			l.fill()
			switch code := l.join(); {
			case code != codeNotCoordinator:
				t.Errorf("%s: the join ends with code %d", what, code)
			case l.ours() != nil:
				t.Errorf("%s: the group is still ours", what)
			default:
				if err := l.complete(l.atCluster()); err != nil {
					t.Errorf("%s: the cluster has %v", what, err)
				}
			}
			points = w.passed()
		})
		t.Logf("%s: %q", what, points)
		if len(points) < 14 {
			t.Fatalf("%s: only %d points: %q", what, len(points), points)
		}
		for at, point := range points {
			for i, next := range slices.Sorted(maps.Keys(afterCrash)) {
				if testing.Short() && (at+i)%len(afterCrash) != 0 {
					continue // with -short, which is also how the race detector runs, each point has one of them
				}
				t.Run(fmt.Sprintf("%s, killed at %d %s, then %s", what, at, point, next), func(t *testing.T) {
					convertWorld(t, at, failing, func(w *conversionWorld) {
						l := w.start(1)
						l.fill()
						l.join()
						if !l.dead.Load() {
							t.Fatal("it lives")
						}
						l.stop()
						node := int32(1 + at%2) // the same replica, or another
						after := w.start(node)
						defer after.stop()
						after.survive()
						afterCrash[next](w.t, after)
					})
				})
			}
		}
	}
}

// Whatever step of a take-over a process dies before or after, the member gets into its group in the end, with all offsets, and the
// cluster's group is gone; or a classic member comes first, and has it with all offsets.
func TestKilledAtAnyPointATakeOverLosesNothing(t *testing.T) {
	takeOver := func(t *testing.T, crashAt int, test func(w *conversionWorld, l *life)) {
		t.Helper()
		convertWorld(t, crashAt, -1, func(w *conversionWorld) {
			w.count = 100 // one batch
			w.classic["g"] = map[offsets.TopicPartition]int64{}
			for p := range w.count {
				w.classic["g"][offsets.TopicPartition{Topic: "in", Partition: p}] = offsetOf(p)
			}
			l := w.start(1)
			defer l.stop()
			test(w, l)
		})
	}
	const takeOverPointsMin = 12 // before and after hold, fetch, append, leave, delete, cancel
	var points []string
	takeOver(t, -1, func(w *conversionWorld, l *life) {
		if code := l.streamsJoin(); code != 0 {
			w.t.Errorf("the join ends with code %d", code)
		}
		if err := l.complete(l.ours()); err != nil {
			w.t.Errorf("the streams group has %v", err)
		}
		l.settles()
		for range 100 {
			if points = w.passed(); len(points) >= takeOverPointsMin {
				break
			}
			time.Sleep(100 * time.Millisecond) // of the bubble's clock: the mark is lifted after the copy is gone
		}
	})
	t.Logf("%q", points)
	if len(points) < takeOverPointsMin {
		t.Fatalf("only %d points", len(points))
	}
	next := map[string]func(*life){
		"a streams member": func(l *life) {
			if code := l.streamsJoin(); code != 0 {
				l.t.Errorf("the join ends with code %d", code)
			}
			if err := l.complete(l.ours()); err != nil {
				l.t.Errorf("the streams group has %v", err)
			}
			l.settles()
		},
		"its deletion": func(l *life) { // once it is ours; what is nobody's is deleted at the cluster
			l.beat(-1)
			req := kmsg.NewPtrDeleteGroupsRequest()
			req.Groups = []string{"g"}
			for range 300 {
				if l.service.Judge(l.t.Context(), "g") == Foreign {
					break
				}
				l.service.DeleteGroups(l.t.Context(), Caller{}, req)
				time.Sleep(100 * time.Millisecond) // the administrator's patience, on the bubble's clock
			}
			if len(l.atCluster()) == 0 {
				return // it was ours, and is gone for good
			}
			if err := l.complete(l.atCluster()); err != nil {
				l.t.Errorf("the cluster has %v", err)
			}
			if l.wasOurs {
				l.t.Error("the classic group is there again after the streams group was deleted")
			}
		},
		"a classic member": func(l *life) {
			l.beat(-1) // the streams member is gone, where it was in
			if code := l.join(); code != codeNotCoordinator {
				l.t.Errorf("the join ends with code %d", code)
			}
			if err := l.complete(l.atCluster()); err != nil {
				l.t.Errorf("the cluster has %v", err)
			}
		},
	}
	for at, point := range points {
		for i, name := range slices.Sorted(maps.Keys(next)) {
			if testing.Short() && (at+i)%len(next) != 0 {
				continue // likewise
			}
			t.Run(fmt.Sprintf("killed at %d %s, then %s", at, point, name), func(t *testing.T) {
				takeOver(t, at, func(w *conversionWorld, l *life) {
					l.streamsJoin()
					for range 100 { // the classic group goes when the answer is out
						if l.dead.Load() {
							break
						}
						time.Sleep(100 * time.Millisecond) // of the bubble's clock
					}
					if !l.dead.Load() {
						w.t.Fatal("it lives")
					}
					l.stop()
					after := w.start(int32(1 + at%2))
					defer after.stop()
					after.survive()
					after.wasOurs = after.service.Judge(w.t.Context(), "g") != Foreign
					next[name](after)
				})
			})
		}
	}
}
