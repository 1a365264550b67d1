package plugin

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"pgregory.net/rapid"
)

// TestBackoffDelays compares with what Kafka 4.4's ExponentialBackoff(30000, 2, 3600000, …) returns.
func TestBackoffDelays(t *testing.T) {
	const middle = 0.5 // the factor 1, as with a jitter of 0 in Kafka
	want := []int64{30000, 60000, 120000, 240000, 480000, 960000, 1920000, 3600000, 3600000, 3600000}
	for attempts, ms := range want {
		if got := BackoffDelay(attempts, middle); got.Milliseconds() != ms {
			t.Errorf("after %d attempts %s, want %d ms", attempts, got, ms)
		}
	}
	for _, c := range []struct {
		attempts  int
		low, high int64
	}{{0, 24000, 36000}, {3, 192000, 288000}, {6, 1536000, 2304000}, {7, 2880000, 3600000}, {50, 2880000, 3600000}, {1 << 30, 2880000, 3600000}} {
		if got := BackoffDelay(c.attempts, 0).Milliseconds(); got < c.low-1 || got > c.low {
			t.Errorf("after %d attempts at least %d ms, want %d", c.attempts, got, c.low)
		}
		if got := BackoffDelay(c.attempts, 1-1e-12).Milliseconds(); got < c.high-1 || got > c.high {
			t.Errorf("after %d attempts at most %d ms, want %d", c.attempts, got, c.high)
		}
	}
}

func middle() float64 { return 0.5 }

var epoch0 = time.UnixMilli(1_700_000_000_000)

func TestBackoffOfAClientThatNeverPushes(t *testing.T) {
	b := NewBackoff(middle, 0)
	now := epoch0
	var asked []string
	for range 4 * 3600 / 5 { // a heartbeat every 5 s for four hours
		if b.Arm("g", 0, now) {
			asked = append(asked, now.Sub(epoch0).String())
		}
		now = now.Add(5 * time.Second)
	}
	want := "[0s 30s 1m30s 3m30s 7m30s 15m30s 31m30s 1h3m30s 2h3m30s 3h3m30s]"
	if fmt.Sprint(asked) != want {
		t.Errorf("asked at %v, want %s", asked, want)
	}
}

func TestBackoffRules(t *testing.T) {
	b := NewBackoff(middle, 0)
	now := epoch0
	entry := func(want string) {
		t.Helper()
		e, ok := b.Entry("g")
		got := "none"
		if ok {
			got = fmt.Sprintf("epoch %d attempts %d for %s", e.TopologyEpoch, e.Attempts, e.Next.Sub(now))
		}
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	entry("none")
	b.Extend("g", 1, now) // a failure without a question: an unsolicited push
	entry("epoch 1 attempts 0 for 30s")
	if b.Arm("g", 1, now) || !b.Active("g", 1, now) {
		t.Error("the window is not open")
	}
	b.Extend("g", 1, now)
	entry("epoch 1 attempts 1 for 1m0s")
	b.Extend("g", 0, now) // a late failure of the epoch before
	entry("epoch 1 attempts 1 for 1m0s")
	b.Clear("g", 0)
	entry("epoch 1 attempts 1 for 1m0s")
	now = now.Add(time.Minute - 1)
	if b.Arm("g", 1, now) {
		t.Error("a moment too early")
	}
	now = now.Add(1)
	if b.Active("g", 1, now) || !b.Arm("g", 1, now) {
		t.Error("the window's end belongs to it")
	}
	entry("epoch 1 attempts 2 for 2m0s")
	if b.Active("g", 2, now) || !b.Arm("g", 2, now) { // another epoch begins anew, also inside the window
		t.Error("another epoch waits")
	}
	entry("epoch 2 attempts 0 for 30s")
	if !b.Arm("g", EpochConversion, now) || b.Arm("g", EpochConversion, now) { // a delete for a classic join failed
		t.Error("conversion")
	}
	entry("epoch -2 attempts 0 for 30s")
	if b.Active("g", 2, now) || !b.Active("g", EpochConversion, now) {
		t.Error("the pseudo epoch is another epoch")
	}
	b.Clear("g", EpochConversion)
	entry("none")
	b.Arm("g", 2, now)
	b.Forget("g")
	b.Forget("h")
	entry("none")
}

// TestBackoffIsBounded: beyond the bound the entry whose window ends first goes.
func TestBackoffIsBounded(t *testing.T) {
	b := NewBackoff(middle, 3)
	b.Arm("soon", 0, epoch0)
	b.Extend("later", 0, epoch0)
	b.Extend("later", 0, epoch0)
	b.Extend("last", 0, epoch0)
	b.Extend("last", 0, epoch0)
	b.Extend("last", 0, epoch0)
	b.Arm("new", 0, epoch0.Add(10*time.Second))
	if b.Len() != 3 {
		t.Errorf("%d entries", b.Len())
	}
	for group, want := range map[string]bool{"soon": false, "later": true, "last": true, "new": true} {
		if _, ok := b.Entry(group); ok != want {
			t.Errorf("%s: %v", group, ok)
		}
	}
	if b.Arm("later", 0, epoch0.Add(20*time.Second)) {
		t.Error("an entry that is there needs no room")
	}
	b.ForgetIf(func(group string) bool { return group != "new" })
	if _, ok := b.Entry("new"); !ok || b.Len() != 1 {
		t.Errorf("%d entries", b.Len())
	}
}

// TestBackoffAgainstAModel: any sequence of operations does what Kafka's map does, and the heap stays a heap.
func TestBackoffAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var last float64
		b := NewBackoff(func() float64 { last = random.Float64(); return last }, 1000)
		model := map[string]BackoffEntry{}
		now := epoch0
		next := func(g string, e int32) BackoffEntry {
			attempts := 0
			if old, ok := model[g]; ok && old.TopologyEpoch == e {
				attempts = old.Attempts + 1
			}
			same := attempts > 0 || model[g].Lost > 0 && model[g].TopologyEpoch == e
			n := BackoffEntry{TopologyEpoch: e, Attempts: attempts, Next: now.Add(BackoffDelay(attempts, last))}
			if same {
				n.History = model[g].History
			}
			return n
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 90_000).Draw(t, "ms")) * time.Millisecond)
			g := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "group")
			e := rapid.SampledFrom([]int32{-2, 0, 1}).Draw(t, "epoch")
			old, had := model[g]
			active := had && old.TopologyEpoch == e && now.Before(old.Next)
			if b.Active(g, e, now) != active {
				t.Fatalf("Active(%s, %d)", g, e)
			}
			switch rapid.SampledFrom([]string{"arm", "extend", "clear", "forget", "ask", "fail", "lose"}).Draw(t, "operation") {
			case "arm":
				if b.Arm(g, e, now) == active {
					t.Fatalf("Arm(%s, %d)", g, e)
				}
				if !active {
					model[g] = next(g, e)
				}
			case "extend":
				b.Extend(g, e, now)
				if !had || old.TopologyEpoch <= e {
					model[g] = next(g, e)
				}
			case "ask":
				if b.Ask(g, e, now, "m", trace.SpanContext{}) == active {
					t.Fatalf("Ask(%s, %d)", g, e)
				}
				if !active {
					n := next(g, e)
					n.Asked, n.AskedAt, n.Member = n.Asked+1, now, "m"
					model[g] = n
				}
			case "fail":
				b.Fail(g, e, now, "no")
				if !had || old.TopologyEpoch <= e {
					n := next(g, e)
					n.Failures, n.FailedAt, n.Failure = n.Failures+1, now, "no"
					model[g] = n
				}
			case "lose":
				if b.Lose(g, e, now) == active {
					t.Fatalf("Lose(%s, %d)", g, e)
				}
				if !active {
					n := next(g, e)
					if n.Lost == 0 {
						n.Attempts, n.Next = -1, time.Time{}
					}
					n.Lost, n.LostAt = n.Lost+1, now
					model[g] = n
				}
			case "clear":
				b.Clear(g, e)
				switch {
				case !had || old.TopologyEpoch != e:
				case old.Lost == 0:
					delete(model, g)
				default:
					model[g] = BackoffEntry{TopologyEpoch: e, Attempts: old.Attempts, History: History{Lost: old.Lost, LostAt: old.LostAt}}
				}
			case "forget":
				b.Forget(g)
				delete(model, g)
			}
			for _, g := range []string{"a", "b", "c"} {
				got, ok := b.Entry(g)
				want, wantOK := model[g]
				if ok != wantOK || got != want {
					t.Fatalf("%s: %+v, want %+v", g, got, want)
				}
			}
			for i, x := range b.order {
				if x.index != i || b.entries[x.group] != x || i > 0 && b.order[(i-1)/2].Next.After(x.Next) {
					t.Fatalf("the heap is broken at %d", i)
				}
			}
			if len(b.order) != len(b.entries) {
				t.Fatal("heap and map differ")
			}
		}
	})
}

func TestBackoffEvictsInOrder(t *testing.T) {
	b := NewBackoff(rand.New(rand.NewPCG(1, 2)).Float64, 500)
	for i := range 2000 {
		b.Arm(fmt.Sprint("g", i), 0, epoch0.Add(time.Duration(i)*time.Minute)) // later than any earlier window
	}
	var left []int
	for i := range 2000 {
		if _, ok := b.Entry(fmt.Sprint("g", i)); ok {
			left = append(left, i)
		}
	}
	if len(left) != 500 || slices.Min(left) != 1500 {
		t.Errorf("%d are left, from %d", len(left), slices.Min(left))
	}
}
