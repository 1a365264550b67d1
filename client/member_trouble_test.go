package client

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// lines are log lines of level Info and above.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// take returns the lines since the last time, as level and message.
func (l *lines) take() (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		_, line, _ = strings.Cut(line, "level=")
		level, rest, _ := strings.Cut(line, " msg=")
		msg, _, _ := strings.Cut(strings.TrimPrefix(rest, `"`), `"`)
		if !strings.HasPrefix(rest, `"`) {
			msg, _, _ = strings.Cut(rest, " ")
		}
		out = append(out, level+" "+msg)
	}
	l.b.Reset()
	return out
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// has says what was logged since the last time, and nothing else.
func (l *lines) has(t *testing.T, want ...string) {
	t.Helper()
	if got := l.take(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("logged:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A first join through streamkeeper is sent away once, and the connection ends; a coordinator that moves or restarts does the same to a member. That is nothing to
// tell. What lasts is told, now and then, and its end.
func TestOnlyTroubleThatLastsIsTold(t *testing.T) {
	log := &lines{}
	living(t, func(c *MemberConfig) { c.Logger = log.logger() }, func(l *life) {
		l.beat().refuse(kerr.NotCoordinator, "")
		l.beat().fail(&kgo.ErrFirstReadEOF{})
		l.entered()
		log.has(t, "INFO joined")
		for range 6 { // three seconds of a restart
			l.beat().fail(errReset)
		}
		l.beat().ok(1)
		log.has(t)
		begun := time.Duration(-1)
		for {
			x := l.beat()
			if begun < 0 {
				begun = x.at
			} else if x.at > begun+28*time.Second {
				x.ok(1)
				break
			}
			x.refuse(kerr.CoordinatorLoadInProgress, "")
		}
		l.beat().ok(1)
		log.has(t, "WARN heartbeat refused, trying again", "WARN heartbeat refused, trying again", "WARN heartbeat refused, trying again", "INFO the coordinator answers again")
		l.beat().refuse(kerr.TopicAuthorizationFailed, "") // that does not pass by itself
		l.beat().ok(1)
		l.beat().ok(1)
		log.has(t, "WARN heartbeat refused, trying again", "INFO the coordinator answers again")
	})
}

// A commit that waits for a lookup goes on when the session has found the coordinator, whatever became of its own.
func TestACommitDoesNotWaitForItsOwnLookup(t *testing.T) {
	livingAt(t, nil, nil, func(l *life) {
		l.entered(0)
		hang := make(chan struct{})
		defer close(hang)
		l.mu.Lock()
		l.find = func(n int) (Node, error) {
			if n == 2 { // that of the commit
				l.mu.Unlock()
				<-hang
				l.mu.Lock()
			}
			return Node{2, "broker", 9092}, nil
		}
		l.mu.Unlock()
		l.m.setCoordinator(nil)
		done := make(chan error, 1)
		begun := time.Since(l.start)
		go func() {
			done <- l.m.Commit(context.Background(), map[TopicPartition]Offset{{"in", 0}: {5, -1, ""}})
		}()
		for l.looked() < 2 {
			time.Sleep(time.Millisecond) // the bubble's clock
		}
		l.beat().refuse(kerr.NotCoordinator, "")
		x := l.other()
		if x.node.ID != 2 {
			t.Errorf("committed at %v", x.node)
		}
		within(t, "the commit", x.at-begun, 0, 6*time.Second) // with the next heartbeat
		x.committed(all(nil))
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Real connections, and a client with franz-go's defaults: all nodes are down for a while. When they are back a commit that was made meanwhile is through, and the member
// has been heard, within what Java's clients wait between two attempts, not franz-go.
func TestAnOutageIsOverSoon(t *testing.T) {
	t.Parallel()
	c := startFake(t, 3)
	c.place("g", 2)
	beats := make(chan time.Time, 1000)
	c.on(88, func(_ int32, kreq kmsg.Request) kmsg.Response {
		resp := kreq.ResponseKind().(*kmsg.StreamsGroupHeartbeatResponse)
		resp.MemberEpoch, resp.HeartbeatIntervalMillis = 1, 500
		resp.Status = []kmsg.StreamsGroupHeartbeatResponseStatus{}
		beats <- time.Now()
		return resp
	})
	c.on(8, func(_ int32, kreq kmsg.Request) kmsg.Response {
		resp := kreq.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, t := range kreq.(*kmsg.OffsetCommitRequest).Topics {
			rt := kmsg.NewOffsetCommitResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rt.Partitions = append(rt.Partitions, kmsg.OffsetCommitResponseTopicPartition{Partition: p.Partition})
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp
	})
	log := &lines{}
	m, err := NewMember(c.client(), MemberConfig{Group: "g", Subtopologies: []Subtopology{{ID: "0", SourceTopics: []string{"in"}}}, Logger: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	<-beats
	for m.Epoch() == joining {
		time.Sleep(10 * time.Millisecond) // nobody tells
	}
	for _, b := range c.brokers {
		b.down()
	}
	committed := make(chan error, 1)
	go func() { committed <- m.Commit(ctx, map[TopicPartition]Offset{{"in", 0}: {5, -1, ""}}) }()
	const outage = 9 * time.Second // by then franz-go pauses 4 s and more between attempts
	time.Sleep(outage)             // which is what is tried
	for len(beats) > 0 {
		<-beats
	}
	back := time.Now()
	for _, b := range c.brokers {
		c.up(b)
	}
	const soon = 2500 * time.Millisecond // twice the longest pause, for the lookup and the request, and a slow machine
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	if took := time.Since(back); took > soon {
		t.Errorf("the commit came through %v after the outage", took)
	} else {
		t.Logf("the commit came through %v after the outage", took)
	}
	if took := (<-beats).Sub(back); took > soon {
		t.Errorf("the next heartbeat came %v after the outage", took)
	}
	var told []string
	for deadline := time.Now().Add(soon); len(told) < 3 && time.Now().Before(deadline); told = append(told, log.take()...) {
		time.Sleep(10 * time.Millisecond) // nobody tells
	}
	if want := []string{"INFO joined", "WARN the coordinator is not found, trying again", "INFO the coordinator answers again"}; !slices.Equal(told, want) {
		t.Errorf("logged %q, want %q", told, want)
	}
}
