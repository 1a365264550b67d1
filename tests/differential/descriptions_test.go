package differential

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Topology descriptions in virtual time: the back-off between askings, and what the cleanup does. What a broker can be asked about is in
// tests/kip1331.

// beatEvery is a heartbeat interval that divides all windows.
const beatEvery = 10 * time.Second

// live lets time pass while members send heartbeats, and counts how often a description was asked for.
func (w *describedWorld) live(d time.Duration, g string, members ...string) (asked int) {
	w.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		w.sleep(beatEvery)
		for _, m := range members {
			if w.beat(1, g, m) {
				asked++
			}
		}
	}
	return asked
}

// TestWindowsOfAskingForADescription: a member that never pushes is asked again after 30 s, a minute, two minutes, …, an hour, and then
// hourly.
func TestWindowsOfAskingForADescription(t *testing.T) {
	described(t, true, func(w *describedWorld) {
		var asked []time.Duration
		last := time.Now()
		for end := time.Now().Add(3*time.Hour + 10*time.Minute); time.Now().Before(end); w.sleep(beatEvery) {
			if w.beat(1, "g", "m") {
				asked = append(asked, time.Since(last))
				last = time.Now()
			}
		}
		want := []time.Duration{0, 30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 32 * time.Minute, time.Hour, time.Hour}
		if !slices.Equal(asked, want) {
			t.Errorf("asked after %v, want %v", asked, want)
		}
		w.end()
	})
}

// TestWindowsAfterFailures: a failure for now extends the window also before its end, a success and a refusal for good end it, and a
// deletion begins anew.
func TestWindowsAfterFailures(t *testing.T) {
	described(t, true, func(w *describedWorld) {
		w.script("set", "g", "transient:not now")
		w.beat(1, "g", "m")
		for range 4 {
			w.push("g", "m")
		}
		if n := w.live(8*time.Minute-beatEvery, "g", "m"); n != 0 {
			t.Errorf("asked %d times within eight minutes of the fourth failure", n)
		}
		if n := w.live(2*beatEvery, "g", "m"); n != 1 {
			t.Errorf("asked %d times after them", n)
		}
		w.script("set", "g", "ok")
		w.push("g", "m")
		if n := w.live(2*time.Hour, "g", "m"); n != 0 {
			t.Errorf("asked %d times for what is stored", n)
		}
		w.script("set", "g", "permanent:never")
		w.push("g", "m") // and now it is not stored any more, and refused
		if n := w.live(2*time.Hour, "g", "m"); n != 0 || w.status("g") != 1 {
			t.Errorf("asked %d times for what was refused, status %d", n, w.status("g"))
		}
		w.leave("g", "m")
		w.delete(3, "g")
		w.script("set", "g", "ok")
		if !w.beat(1, "g", "m") {
			t.Error("not asked in the group's second life")
		}
		w.push("g", "m")
		w.status("g")
		w.end()
	})
}

// settled is when everything that can expire has expired in both: the retention, three periods of Kafka's loops, and time to spare.
const settled = offsetRetention + 5*checkInterval

// TestExpiry: offsets go, then the description, then the group, in this order.
func TestExpiry(t *testing.T) {
	described(t, true, func(w *describedWorld) {
		w.beat(1, "g", "m")
		w.push("g", "m")
		w.commit("g", "m")
		w.live(3*time.Minute, "g", "m")
		w.leave("g", "m")
		w.sleep(checkInterval)
		if s := w.status("g"); s != 3 {
			t.Errorf("status while there are offsets: %d", s)
		}
		w.sleep(settled)
		if s := w.status("g"); s != -1 {
			t.Errorf("the group is still there, status %d", s)
		}
		w.wantOrder(w.end(), `OffsetCommit in null`, `"StoredDescriptionTopologyEpoch":-2`, `"StoredDescriptionTopologyEpoch":-1`, `StreamsGroupMetadata  null`)
		w.wantCalls("g", "set", "get", "delete")
	})
}

// wantOrder looks for the last line with each of these texts, in this order.
func (w *describedWorld) wantOrder(lines []string, texts ...string) {
	w.t.Helper()
	at := -1
	for _, want := range texts {
		i := -1
		for j, l := range lines {
			if strings.Contains(l, want) {
				i = j
			}
		}
		if i <= at {
			w.fatal("no %s after the one before in\n%s", want, strings.Join(lines, "\n"))
		}
		at = i
	}
}

// wantCalls looks at the calls of our plugin for a group, repetitions left out.
func (w *describedWorld) wantCalls(g string, want ...string) {
	w.t.Helper()
	var got []string
	for _, c := range w.plugin.calls {
		operation, group, _ := strings.Cut(c, " ")
		if group == g && (len(got) == 0 || got[len(got)-1] != operation) {
			got = append(got, operation)
		}
	}
	if !slices.Equal(got, want) {
		w.fatal("calls %q, want %q", got, want)
	}
}

// TestExpiryWithAPluginThatFails: as long as the plugin does not delete, the group stays, uncertain; it can be joined meanwhile.
func TestExpiryWithAPluginThatFails(t *testing.T) {
	for _, how := range []string{"error:no", "throw:no", "null", "permanent:no"} {
		described(t, true, func(w *describedWorld) {
			w.script("delete", "g", how)
			w.beat(1, "g", "m")
			w.push("g", "m")
			w.commit("g", "m")
			w.leave("g", "m")
			w.sleep(settled)
			if s := w.status("g"); s != 1 {
				t.Errorf("%s: status %d", how, s)
			}
			w.beat(1, "g", "n") // the members' window is long over
			w.push("g", "n")
			if s := w.status("g"); s != 3 {
				t.Errorf("%s: status of the new life %d", how, s)
			}
			w.leave("g", "n")
			w.sleep(settled)
			w.script("delete", "g", "ok")
			w.sleep(settled)
			if s := w.status("g"); s != -1 {
				t.Errorf("%s: the group is still there, status %d", how, s)
			}
			w.end()
		})
	}
}

// TestExpiryWithoutADescription: a group without a description is not held up by the plugin, and a group with one not once it is refused.
func TestExpiryWithoutADescription(t *testing.T) {
	described(t, true, func(w *describedWorld) {
		w.script("set", "refused", "permanent:never")
		w.script("set", "failed", "error:not now")
		for _, g := range []string{"never", "refused", "failed"} {
			w.beat(1, g, "m")
			if g != "never" {
				w.push(g, "m")
			}
			w.leave(g, "m")
		}
		w.sleep(settled)
		for _, g := range []string{"never", "refused", "failed"} {
			if s := w.status(g); s != -1 {
				t.Errorf("%s is still there, status %d", g, s)
			}
		}
		w.end()
		w.wantCalls("never")
		w.wantCalls("refused", "set", "delete") // uncertain, so something may be there
		w.wantCalls("failed", "set", "delete")
	})
}

// TestSessionsThatExpire: a member that is not heard of any more leaves its group empty, and all goes the same way.
func TestSessionsThatExpire(t *testing.T) {
	described(t, true, func(w *describedWorld) {
		w.beat(1, "g", "m")
		w.push("g", "m")
		w.sleep(time.Minute)
		if s := w.status("g"); s != 3 {
			t.Errorf("status of the empty group %d", s)
		}
		w.sleep(settled)
		if s := w.status("g"); s != -1 {
			t.Errorf("the group is still there, status %d", s)
		}
		w.end()
	})
}

// TestWithoutAPlugin: nobody is asked, a push is refused whatever it says, nothing is stored, and groups go without a plugin being asked.
func TestWithoutAPlugin(t *testing.T) {
	described(t, false, func(w *describedWorld) {
		if w.beat(1, "g", "m") || w.live(time.Hour, "g", "m") != 0 {
			t.Error("asked without a plugin")
		}
		for _, change := range []func(*kmsg.StreamsGroupTopologyDescriptionUpdateRequest){
			func(*kmsg.StreamsGroupTopologyDescriptionUpdateRequest) {},
			func(r *kmsg.StreamsGroupTopologyDescriptionUpdateRequest) { r.Group, r.MemberID = "", "" },
			func(r *kmsg.StreamsGroupTopologyDescriptionUpdateRequest) { r.Group = "nobody" },
		} {
			r := kmsg.NewPtrStreamsGroupTopologyDescriptionUpdateRequest()
			r.Group, r.MemberID = "g", "m"
			change(r)
			if code := sameBoth[*kmsg.StreamsGroupTopologyDescriptionUpdateResponse](w, r).ErrorCode; code != 35 {
				t.Errorf("push: %d", code)
			}
		}
		if s := w.status("g"); s != 1 {
			t.Errorf("status %d", s)
		}
		w.leave("g", "m")
		if code := w.delete(3, "g"); code != 0 {
			t.Errorf("delete: %d", code)
		}
		w.beat(1, "h", "m")
		w.leave("h", "m")
		w.sleep(settled)
		if s := w.status("h"); s != -1 {
			t.Errorf("the group is still there, status %d", s)
		}
		w.end()
		if len(w.plugin.calls) != 0 {
			t.Errorf("calls %q", w.plugin.calls)
		}
	})
}

var (
	descriptionSeed      = flag.Uint64("description.seed", 0, "the seed of the only random life of descriptions to play; 0: as many as -description.lives says")
	descriptionLivesFlag = flag.Int("description.lives", 25, "how many random lives of descriptions to play")
)

// TestRandomLivesOfDescriptions plays phases of requests of less than a period of the cleanup, and between them hours in which everything
// expires that can: the two sides may remove a thing in different periods, but end in the same state with the same records.
func TestRandomLivesOfDescriptions(t *testing.T) {
	needOracle(t)
	seeds := []uint64{*descriptionSeed}
	if *descriptionSeed == 0 {
		seeds = nil
		for range *descriptionLivesFlag {
			seeds = append(seeds, rand.Uint64())
		}
	}
	for _, seed := range seeds {
		described(t, true, func(w *describedWorld) {
			w.note("seed %d: play it again with -args -description.seed %d", seed, seed)
			w.randomLife(rand.New(rand.NewPCG(seed, 2)))
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func (w *describedWorld) randomLife(r *rand.Rand) {
	groups, hows := []string{"g", "h"}, []string{"ok", "ok", "nothing", "null", "permanent:never", "transient:not now", "error:broken", "throw:bug"}
	// Kafka keeps the window of a life in which nobody pushed: groups that went by a request, or without a push, do not come again.
	gone, pushed := map[string]bool{}, map[string]bool{}
	for range 1 + r.IntN(3) {
		began := time.Now()
		for time.Since(began) < checkInterval-2*time.Minute {
			g, m := groups[r.IntN(2)], []string{"a", "b"}[r.IntN(2)]
			switch n := r.IntN(16); {
			case n < 4:
				if w.members[g+m] == 0 && gone[g] {
					continue
				}
				w.sleep(time.Millisecond) // sessions of two members that end at the same moment end in any order
				w.beat(int16(min(1, r.IntN(5))), g, m)
			case n < 7 && w.members[g+m] != 0:
				if code := w.push(g, m); code == 0 || code == 135 {
					pushed[g] = true
				}
			case n < 8 && w.members[g+m] != 0:
				w.leave(g, m)
			case n < 10:
				w.status(g)
			case n < 11:
				if w.delete(int16(r.IntN(4)), g) == 0 {
					gone[g] = true
				}
			case n < 12 && w.members[g+m] != 0:
				w.commit(g, m)
			case n < 14:
				w.script([]string{"set", "get", "delete"}[r.IntN(3)], g, hows[r.IntN(len(hows))])
			default:
				w.sleep(time.Duration(1+r.IntN(40)) * time.Second)
				for _, known := range groups { // whoever is silent for long is thrown out, on both sides
					for _, m := range []string{"a", "b"} {
						if w.members[known+m] != 0 && r.IntN(4) > 0 {
							w.sleep(time.Millisecond)
							w.beat(1, known, m)
						}
					}
				}
			}
		}
		w.note("%v pass", settled)
		w.sleep(settled + began.Add(checkInterval).Sub(time.Now()))
		clear(w.members)
		for _, g := range groups {
			w.status(g)
			gone[g] = gone[g] || !pushed[g]
		}
		clear(pushed)
	}
	w.end()
}
