package gateway

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/coordinator"
	"streamkeeper/internal/wire"
)

// A group becomes ours while a fetch of its offsets is on its way to the cluster, which has deleted its copy by then: nobody is told that there is no offset.
func TestNoOffsetOfAGroupThatWasTakenOverMeanwhile(t *testing.T) {
	g, up, svc := startWithGroups(t)
	var verdict coordinator.Verdict
	var offset int64
	up.change(func(s *scripted) {
		s.answer = func(_ wire.Header, req kmsg.Request) kmsg.Response {
			r, ok := req.(*kmsg.OffsetFetchRequest)
			if !ok {
				return nil
			}
			svc.set("moving", verdict)
			resp := r.ResponseKind().(*kmsg.OffsetFetchResponse)
			for _, t := range r.Topics {
				resp.Topics = append(resp.Topics, kmsg.OffsetFetchResponseTopic{Topic: t.Topic, Partitions: []kmsg.OffsetFetchResponseTopicPartition{{Partition: 2, Offset: offset}}})
			}
			for _, asked := range r.Groups {
				rg := kmsg.NewOffsetFetchResponseGroup()
				rg.Group, rg.ErrorCode = asked.Group, 0
				rg.Topics = append(rg.Topics, kmsg.OffsetFetchResponseGroupTopic{Topic: "in", Partitions: []kmsg.OffsetFetchResponseGroupTopicPartition{{Partition: 2, Offset: offset}}})
				resp.Groups = append(resp.Groups, rg)
			}
			return resp
		}
	})
	cl := raw(t, brokerAddr(t, g, 1))
	for _, c := range []struct {
		version int16
		becomes coordinator.Verdict
		offset  int64
		want    string
	}{
		{9, coordinator.Foreign, -1, "moving=0"},
		{9, coordinator.Ours, -1, "moving=16"},
		{9, coordinator.Elsewhere, -1, "moving=16"},
		{9, coordinator.Undecided, -1, "moving=14"},
		{9, coordinator.Ours, 5, "moving=0"}, // it was there when the cluster answered
		{8, coordinator.Ours, -1, "moving=16"},
		{7, coordinator.Foreign, -1, "all=0 in/2@-1=0"},
		{7, coordinator.Ours, -1, "all=16 in/2@-1=16"},
		{1, coordinator.Elsewhere, -1, "all=0 in/2@-1=16"},
		{7, coordinator.Ours, 5, "all=0 in/2@5=0"},
	} {
		svc.set("moving", coordinator.Foreign)
		verdict, offset = c.becomes, c.offset
		if got := codesOf(ask[kmsg.Response](t, cl, c.version, requestFor(offsetFetch, "moving"))); got != c.want {
			t.Errorf("version %d, offset %d, then %v: %s, want %s", c.version, c.offset, c.becomes, got, c.want)
		}
	}
	// Of several groups only that one is refused.
	svc.set("moving", coordinator.Foreign)
	verdict, offset = coordinator.Elsewhere, -1
	both := requestFor(offsetFetch, "moving").(*kmsg.OffsetFetchRequest)
	both.Groups = append(both.Groups, requestFor(offsetFetch, "x").(*kmsg.OffsetFetchRequest).Groups[0])
	if got := codesOf(ask[kmsg.Response](t, cl, 9, both)); got != "moving=16 x=0" {
		t.Errorf("of two groups: %s", got)
	}
}
