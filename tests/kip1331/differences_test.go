package kip1331

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// differences are what streamkeeper does otherwise than Kafka 4.4, on purpose: each story shows what Kafka does, and what we do
// instead. docs/differences.md lists them. If Kafka changes, a story fails and its difference can go.
func differences(t *testing.T, w *world) {
	slow := completesLate(t, w) // works for nine seconds, while the other hangs for six
	t.Run("AFutureThatNeverCompletes", func(t *testing.T) { neverCompletes(t, w) })
	t.Run("AFutureThatCompletesLate", slow)
	t.Run("AMessageThatDoesNotFit", func(t *testing.T) { largeMessage(t, w) })
	t.Run("AGroupThatIsGoneIsForgotten", func(t *testing.T) { forgotten(t, w) })
}

// hangingFor is how long Kafka is looked at without an answer; ours comes after the time-out of the plugin, 4 s.
const hangingFor = 6 * time.Second

// neverCompletes: Kafka waits for ever; we give the call up, as a failure for now. Set, get and delete hang side by side.
func neverCompletes(t *testing.T, w *world) {
	type request struct {
		p   *pair
		req kmsg.Request
	}
	push, get, del := w.group("hang", "set:hang"), w.group("hang", "get:hang"), w.group("hang", "delete:hang")
	p := w.pair(t)
	epoch := p.joined(1, push, "m")
	p.joined(1, get, "m")
	p.push(pushing(get, "m", 0))
	p.described(del)
	deletion := kmsg.NewPtrDeleteGroupsRequest()
	deletion.Version, deletion.Groups = 3, []string{del}
	requests := []request{{w.pair(t), pushing(push, "m", 0)}, {w.pair(t), describing(1, true, get)}, {w.pair(t), deletion}}
	ctx, cancel := context.WithTimeout(t.Context(), hangingFor)
	defer cancel()
	silent, answers := make(chan error, len(requests)), make([]chan kmsg.Response, len(requests))
	for i, r := range requests {
		answers[i] = make(chan kmsg.Response, 1)
		go func() {
			_, err := r.p.kafka.Exchange(ctx, r.req)
			silent <- err
		}()
		go func() {
			resp, err := r.p.keeper.Exchange(t.Context(), r.req)
			if err != nil {
				t.Error(err)
			}
			answers[i] <- resp
		}()
	}
	// Heartbeats go on in both, and nobody is asked again: the window is still that of the first asking.
	awaitCalls(t, p, push, "set 0 hang")
	wantAsked(t, "while it hangs", p.beat(heartbeat(1, push, "m", epoch)).TopologyDescriptionRequired, false)

	if r, _ := (<-answers[0]).(*kmsg.StreamsGroupTopologyDescriptionUpdateResponse); r == nil || r.ErrorCode != 135 || r.ErrorMessage == nil ||
		*r.ErrorMessage != "the topology description plugin did not answer within 4s" {
		t.Errorf("push: %s", pretty(r))
	}
	if r, _ := (<-answers[1]).(*kmsg.StreamsGroupDescribeResponse); r == nil || r.Groups[0].ErrorCode != 0 || r.Groups[0].TopologyDescriptionStatus != 2 {
		t.Errorf("describe: %s", pretty(r))
	}
	if r, _ := (<-answers[2]).(*kmsg.DeleteGroupsResponse); r == nil || r.Groups[0].ErrorCode != 134 {
		t.Errorf("delete: %s", pretty(r))
	}
	for range requests {
		if err := <-silent; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Kafka answers: %v", err)
		}
	}
	wantAsked(t, "after the time-out", p.beat(heartbeat(1, push, "m", epoch)).TopologyDescriptionRequired, false)
	check(t, p, push, []string{"set 0 hang"}, []string{"-1/-1", "-2/-1"})
	check(t, p, del, []string{"set 0 ok", "delete -1 hang"}, []string{"-1/-1", "-2/-1", "0/-1", "-2/-1"})
}

// completesLate: Kafka waits for a slow plugin, and stores what it did. Here the time-out was an answer already: the late completion changes
// nothing, the group stays uncertain, and the next push tells.
func completesLate(t *testing.T, w *world) (rest func(t *testing.T)) {
	p, g := w.pair(t), w.group("slow", "set:slow*1")
	p.joined(1, g, "m")
	type answers struct{ theirs, ours int16 }
	pushed := make(chan answers, 1)
	go func() {
		defer close(pushed)
		theirs, ours := ask[*kmsg.StreamsGroupTopologyDescriptionUpdateResponse](p, pushing(g, "m", 0))
		pushed <- answers{theirs.ErrorCode, ours.ErrorCode}
	}()
	return func(t *testing.T) { completedLate(t, p, g, <-pushed == answers{0, 135}) }
}

func completedLate(t *testing.T, p *pair, g string, asExpected bool) {
	if !asExpected {
		t.Errorf("the answers are not 0 and 135:\n%s", strings.Join(p.story, "\n"))
	}
	logs := p.w.readLogs(t)
	if a, b := fmt.Sprint(epochs(logs.kafka[g])), fmt.Sprint(epochs(logs.keeper[g])); a != "[-1/-1 -2/-1 0/-1]" || b != "[-1/-1 -2/-1]" {
		t.Errorf("epochs: Kafka %s, streamkeeper %s", a, b)
	}
	if code := p.push(pushing(g, "m", 0)); code != 0 {
		t.Errorf("second push: %d", code)
	}
	if s := p.describe(g)[g]; s != 3 {
		t.Errorf("status: %d", s)
	}
}

// largeMessage: Kafka can't encode a text above 32,767 bytes, and the member gets an error without one; we cut the text.
func largeMessage(t *testing.T, w *world) {
	p, g := w.pair(t), w.group("large", "set:large")
	p.joined(1, g, "m")
	theirs, ours := ask[*kmsg.StreamsGroupTopologyDescriptionUpdateResponse](p, pushing(g, "m", 0))
	if theirs.ErrorCode != -1 || theirs.ErrorMessage != nil {
		t.Errorf("Kafka: %.300s", pretty(theirs))
	}
	if ours.ErrorCode != 135 || ours.ErrorMessage == nil || !strings.HasSuffix(*ours.ErrorMessage, "x… (40000 bytes in all)") || len(*ours.ErrorMessage) > 2048 {
		t.Errorf("streamkeeper: %.300s", pretty(ours))
	}
	check(t, p, g, []string{"set 0 large"}, []string{"-1/-1", "-2/-1"})
}

// forgotten: where a group goes that nobody described, Kafka keeps the window of its last asking, and a group of that name that is made anew
// waits for its end. We forget it.
func forgotten(t *testing.T, w *world) {
	p, g := w.pair(t), w.group("never-pushed")
	p.joined(1, g, "m")
	p.leave(g, "m")
	p.delete(3, g)
	theirs, ours := ask[*kmsg.StreamsGroupHeartbeatResponse](p, joining(1, g, "m", 0))
	if theirs.TopologyDescriptionRequired || !ours.TopologyDescriptionRequired {
		t.Errorf("asked: Kafka %v, streamkeeper %v", theirs.TopologyDescriptionRequired, ours.TopologyDescriptionRequired)
	}
	check(t, p, g, nil, nil)
}
