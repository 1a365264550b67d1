package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// turn is what a random coordinator does with a heartbeat.
type turn struct {
	Kind  int // see the switch in randomLife
	Tasks [3]uint8
	Delay int // of the answer, in milliseconds
}

// believer holds what the handlers were told against what may be.
type believer struct {
	mu    sync.Mutex
	owned Tasks
	last  [2]Tasks // what it had before the last two handlers: a heartbeat that is made while they begin may be as old
	busy  bool
	err   error
}

func (b *believer) enter(what string, tasks Tasks, delay time.Duration, check func() bool, then func()) {
	b.mu.Lock()
	if b.busy {
		b.err = errors.Join(b.err, fmt.Errorf("%s %v while another handler works", what, tasks))
	}
	if !check() {
		b.err = errors.Join(b.err, fmt.Errorf("%s %v with %v", what, tasks, b.owned))
	}
	b.busy = true
	b.mu.Unlock()
	time.Sleep(delay)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy, b.last = false, [2]Tasks{b.owned, b.last[0]}
	then()
}

// bits are tasks of subtopology 0, one for each bit.
func bits(b uint8) []TaskID {
	var out []TaskID
	for p := range int32(8) {
		if b&(1<<p) != 0 {
			out = append(out, TaskID{"0", p})
		}
	}
	return out
}

// Whatever a coordinator does, handlers are called one at a time and with tasks that make sense, acknowledgements are true, and
// the member ends without any tasks.
func TestAnyCoordinator(t *testing.T) {
	turnOf := rapid.Custom(func(t *rapid.T) turn {
		return turn{rapid.IntRange(0, 13).Draw(t, "kind"), [3]uint8{rapid.Uint8().Draw(t, "active"), rapid.Uint8Range(0, 3).Draw(t, "standby"), rapid.Uint8Range(0, 1).Draw(t, "warmup")},
			rapid.SampledFrom([]int{0, 0, 0, 50, 3000, 40000}).Draw(t, "delay")}
	})
	rapid.Check(t, func(rt *rapid.T) {
		turns := rapid.SliceOfN(turnOf, 1, 25).Draw(rt, "turns")
		work := time.Duration(rapid.SampledFrom([]int{0, 10, 7000}).Draw(rt, "work")) * time.Millisecond
		static := rapid.Bool().Draw(rt, "static")
		var err error
		synctest.Test(t, func(*testing.T) { err = randomLife(t, turns, work, static) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

func randomLife(t *testing.T, turns []turn, work time.Duration, static bool) error {
	s := &script{t: t, start: time.Now(), beats: make(chan *exchange), pushes: make(chan *exchange), others: make(chan *exchange)}
	b := &believer{}
	cfg := MemberConfig{Group: "g", Subtopologies: []Subtopology{{ID: "0", SourceTopics: []string{"in"}}}, Description: small()}
	if static {
		cfg.InstanceID = "i"
	}
	cfg.Revoke = func(_ context.Context, t Tasks) error {
		b.enter("revoke", t, work, func() bool { return !t.Empty() && t.without(b.owned).Empty() }, func() { b.owned = b.owned.without(t) })
		return nil
	}
	cfg.Assign = func(_ context.Context, t Tasks) error {
		b.enter("assign", t, work, func() bool { return b.owned.without(t).Empty() }, func() { b.owned = t })
		return nil
	}
	cfg.Lose = func(t Tasks) {
		b.enter("lose", t, work, func() bool { return t.Equal(b.owned) }, func() { b.owned = Tasks{} })
	}
	m, err := newMember(s, cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	epoch := int32(1)
	for i := 0; ; {
		if i == len(turns) {
			cancel()
		}
		select {
		case <-done:
			b.mu.Lock()
			defer b.mu.Unlock()
			if !b.owned.Empty() {
				b.err = errors.Join(b.err, fmt.Errorf("it ended with %v", b.owned))
			}
			return b.err
		case x := <-s.pushes:
			x.refuse(kerr.CoordinatorLoadInProgress, "")
		case <-time.After(time.Hour):
			cancel()
			return errors.New("nothing comes for an hour")
		case x := <-s.beats:
			r := x.beat()
			b.mu.Lock()
			if told := (Tasks{tasksFromWire(r.ActiveTasks), tasksFromWire(r.StandbyTasks), tasksFromWire(r.WarmupTasks)}); r.MemberEpoch > 0 && r.ActiveTasks != nil && !told.Equal(b.owned) && !told.Equal(b.last[0]) && !told.Equal(b.last[1]) {
				b.err = errors.Join(b.err, fmt.Errorf("it says %v and has %v, before %v", told, b.owned, b.last))
			}
			b.mu.Unlock()
			if i >= len(turns) {
				x.ok(r.MemberEpoch)
				continue
			}
			turn := turns[i]
			i++
			time.Sleep(time.Duration(turn.Delay) * time.Millisecond)
			switch turn.Kind {
			case 0:
				x.refuse(kerr.UnknownMemberID, "")
			case 1:
				x.refuse(kerr.FencedMemberEpoch, "")
			case 2:
				x.refuse(kerr.NotCoordinator, "")
			case 3:
				x.refuse(kerr.CoordinatorLoadInProgress, "")
			case 4:
				x.fail(errReset)
			case 5:
				x.ok(epoch, asksForTopology)
			case 6:
				x.ok(epoch)
			case 7:
				x.ok(epoch, remarked(kmsg.StreamsGroupHeartbeatResponseStatus{StatusCode: int8(turn.Tasks[0] % 8)}))
			default:
				epoch++
				x.ok(epoch, func(resp *kmsg.StreamsGroupHeartbeatResponse) {
					resp.ActiveTasks, resp.StandbyTasks, resp.WarmupTasks = tasksToWire(bits(turn.Tasks[0])), tasksToWire(bits(turn.Tasks[1])), tasksToWire(bits(turn.Tasks[2]))
				})
			}
		}
	}
}

// FuzzDescribeAnswer: whatever a node answers is read or refused, and what is read can be shown.
func FuzzDescribeAnswer(f *testing.F) {
	for _, version := range []int16{0, 1} {
		r := kmsg.NewPtrStreamsGroupDescribeResponse()
		r.Version = version
		g := group("g")
		pictured(&g, 3, wireNode("a", 1), wireNode("b", 2))
		g.Members = append(g.Members, kmsg.NewStreamsGroupDescribeResponseGroupMember())
		r.Groups = append(r.Groups, g)
		f.Add(version, r.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, version int16, body []byte) {
		r := kmsg.NewPtrStreamsGroupDescribeResponse()
		r.Version = version & 1
		if r.ReadFrom(body) != nil {
			t.Skip("not an answer")
		}
		for i := range r.Groups {
			d, err := groupFromWire(&r.Groups[i], Node{1, "h", 2})
			if (d == nil) != (err != nil) {
				t.Fatalf("%v, %v", d, err)
			}
			if d == nil {
				continue
			}
			if (d.TopologyDescription != nil) != (d.TopologyStatus == TopologyAvailable) {
				t.Fatalf("status %v with description %v", d.TopologyStatus, d.TopologyDescription)
			}
			if _, err := json.Marshal(d); err != nil {
				t.Fatal(err)
			}
		}
	})
}
