package kip1331

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// convertStories: a classic member joins an empty streams group that has a description.
func convertStories(t *testing.T, w *world) {
	t.Run("TheDescriptionGoesFirst", func(t *testing.T) { converted(t, w) })
	t.Run("APluginThatFails", func(t *testing.T) { notConverted(t, w) })
	t.Run("AGroupWithMembers", func(t *testing.T) { notEmpty(t, w) })
}

func classicJoin(group, member string) *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version, r.Group, r.MemberID, r.ProtocolType = 9, group, member, "consumer"
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 30_000, 30_000
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", []byte{0, 0, 0, 0, 0, 0}
	r.Protocols = []kmsg.JoinGroupRequestProtocol{p}
	return r
}

// converted: in Kafka the coordinator goes on with the join; here the group and its offsets are the cluster's then, and the client is told to
// look for its coordinator again (docs/differences.md). The member id that it is given is of the broker's making.
func converted(t *testing.T, w *world) {
	p, g := w.pair(t), w.group("converted")
	p.described(g)
	theirs, ours := ask[*kmsg.JoinGroupResponse](p, classicJoin(g, ""))
	for deadline := time.Now().Add(answerTimeout); ours.ErrorCode != 79 && time.Now().Before(deadline); {
		if ours.ErrorCode != 16 && ours.ErrorCode != 27 {
			t.Fatalf("streamkeeper: %d", ours.ErrorCode)
		}
		time.Sleep(50 * time.Millisecond) // a client's back-off
		resp, err := p.keeper.Exchange(t.Context(), classicJoin(g, ""))
		if err != nil {
			t.Fatal(err)
		}
		ours = resp.(*kmsg.JoinGroupResponse)
	}
	if theirs.ErrorCode != 79 || ours.ErrorCode != 79 { // MEMBER_ID_REQUIRED
		t.Errorf("join: Kafka %d, streamkeeper %d", theirs.ErrorCode, ours.ErrorCode)
	}
	if offset := p.committed(g); offset != 7 {
		t.Errorf("offset %d", offset)
	}
	if calls := p.pluginCalls(g); !slices.Equal(calls, []string{"set 0 ok", "delete -1 ok"}) {
		t.Errorf("calls %q", calls)
	}
	logs := w.readLogs(t)
	for side, log := range map[string][]string{"Kafka": logs.kafka[g], "streamkeeper": logs.keeper[g]} {
		if e := epochs(log); !slices.Contains(e, "-2/-1") || e[len(e)-1] != "gone" {
			t.Errorf("epochs of %s: %q", side, e)
		}
	}
	p.describe(g) // is no streams group any more
}

// notConverted: as long as the plugin does not delete, the member is told to wait; for a window, it is not even asked.
func notConverted(t *testing.T, w *world) {
	p, g := w.pair(t), w.group("kept", "delete:error")
	p.described(g)
	for range 3 {
		if r := same[*kmsg.JoinGroupResponse](p, classicJoin(g, "")); r.ErrorCode != 27 || r.MemberID != "" {
			t.Errorf("join: %d %q", r.ErrorCode, r.MemberID)
		}
	}
	if s := p.describe(g)[g]; s != 1 {
		t.Errorf("status %d", s)
	}
	if offset := p.committed(g); offset != 7 {
		t.Errorf("offset %d", offset)
	}
	check(t, p, g, []string{"set 0 ok", "delete -1 error"}, []string{"-1/-1", "-2/-1", "0/-1", "-2/-1"})
}

// notEmpty: a group with members stays what it is, and keeps its description.
func notEmpty(t *testing.T, w *world) {
	p, g := w.pair(t), w.group("live")
	p.joined(1, g, "m")
	p.push(pushing(g, "m", 0))
	if r := same[*kmsg.JoinGroupResponse](p, classicJoin(g, "classic")); r.ErrorCode != 23 {
		t.Errorf("join: %d", r.ErrorCode)
	}
	if s := p.describe(g)[g]; s != 3 {
		t.Errorf("status %d", s)
	}
	check(t, p, g, []string{"set 0 ok", "get 0 ok"}, []string{"-1/-1", "-2/-1", "0/-1"})
}
