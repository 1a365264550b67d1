package eventlog

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestADeniedTopicIsAskedForAgain: a broker that denies the topic once, as while its rights are replaced, is asked again within a second or two; nothing else would ask, as reads
// and writes go on. Where it is denied for good it stays so.
func TestADeniedTopicIsAskedForAgain(t *testing.T) {
	clusterInBubble(t, func(t *testing.T, c *kfake.Cluster, dial func(*KafkaConfig)) {
		k := open(t, c.ListenAddrs(), partitions(3), dial)
		follow(t, k, newMemory())
		time.Sleep(5 * time.Second) // the bubble's clock: nothing else is asked for any more
		all, err := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), k.client)
		if err != nil {
			t.Fatal(err)
		}
		var denials atomic.Int64 // how many are left
		c.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			r := req.(*kmsg.MetadataRequest)
			if len(r.Topics) != 1 || denials.Load() <= 0 {
				return nil, nil, false
			}
			denials.Add(-1)
			resp := r.ResponseKind().(*kmsg.MetadataResponse)
			resp.Brokers = all.Brokers
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic, topic.ErrorCode = r.Topics[0].Topic, kerr.TopicAuthorizationFailed.Code
			resp.Topics = append(resp.Topics, topic)
			return resp, nil, true
		})
		for _, c := range []struct {
			answers int64
			after   time.Duration
			denied  bool
		}{
			{1, 500 * time.Millisecond, true},
			{0, failedPause, false},
			{1 << 20, time.Minute, true},
			{0, 2 * failedPause, false},
			{0, time.Minute, false},
		} {
			if before := denials.Swap(c.answers); before <= 0 && c.answers > 0 {
				k.leaders.refresh()
			}
			time.Sleep(c.after) // the bubble's clock
			for p := range int32(3) {
				if err := k.Denied(p); (err != nil) != c.denied || err != nil && !errors.Is(err, kerr.TopicAuthorizationFailed) {
					t.Errorf("%+v: partition %d: %v", c, p, err)
				}
			}
		}
	})
}
