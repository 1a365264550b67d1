package eventlog

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// lines are what was logged.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) with(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// A log that can't be read is told, with the reason, once a minute for all partitions; that leaders move is not.
func TestALogThatCanNotBeReadIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said lines
		n := &cutOffNet{VirtualNetwork: new(kfake.VirtualNetwork), conns: map[net.Conn]string{}}
		c := fakeCluster(t, kfake.Ports(9092), kfake.ListenFn(n.Listen))
		k := open(t, c.ListenAddrs(), partitions(9), options(kgo.Dialer(n.DialContext)), func(cfg *KafkaConfig) {
			cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
		})
		var refused atomic.Bool
		refused.Store(true)
		c.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			if !refused.Load() {
				return nil, nil, false
			}
			resp := req.ResponseKind().(*kmsg.FetchResponse)
			for _, t := range req.(*kmsg.FetchRequest).Topics {
				topic := kmsg.NewFetchResponseTopic()
				topic.Topic, topic.TopicID = t.Topic, t.TopicID
				for _, p := range t.Partitions {
					part := kmsg.NewFetchResponseTopicPartition()
					part.Partition, part.ErrorCode = p.Partition, kerr.UnknownTopicID.Code
					topic.Partitions = append(topic.Partitions, part)
				}
				resp.Topics = append(resp.Topics, topic)
			}
			return resp, nil, true
		})
		follow(t, k, newMemory())
		const text = "partitions can't be read"
		time.Sleep(troubleAfter / 2) // the bubble's clock
		if got := said.with(text); len(got) > 0 {
			t.Errorf("told too early: %v", got)
		}
		time.Sleep(5*troubleEvery + troubleAfter) // the bubble's clock
		got := said.with(text)
		if len(got) < 5 || len(got) > 6 || !strings.Contains(got[5-1], "partitions=9") || !strings.Contains(got[0], "UNKNOWN_TOPIC_ID") || !strings.Contains(got[0], "level=WARN") {
			t.Errorf("%d lines: %v", len(got), got)
		}
		refused.Store(false)
		time.Sleep(10 * time.Second) // the bubble's clock
		before := len(said.with(text))
		for range 10 {
			n.cutOff(func(string) bool { return true })
			time.Sleep(troubleAfter / 4) // the bubble's clock
			n.cutOff(nil)
			time.Sleep(troubleEvery) // the bubble's clock
		}
		if after := said.with(text); len(after) != before {
			t.Errorf("told of short outages: %v", after[before:])
		}
	})
}
