package coordinator

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/shard/streams"
)

// fakeCreator makes topics in the cluster of the fakes, unless errs has something against it.
type fakeCreator struct {
	cluster *metadata

	mu       sync.Mutex
	requests [][]string
	errs     map[string]error
	busy     int
	most     int
	hold     chan struct{} // answers wait for it if it is not nil
	beating  chan struct{} // likewise: while a heartbeat is being answered, which does not wait for them, and may say what they say where they are faster
}

// during runs f, and lets no answer come before it returns.
func (f *fakeCreator) during(do func()) {
	beating := make(chan struct{})
	set := func(c chan struct{}) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.beating = c
	}
	set(beating)
	do()
	set(nil)
	close(beating)
}

func (f *fakeCreator) CreateTopics(ctx context.Context, topics []streams.CreatableTopic) []error {
	f.mu.Lock()
	var names []string
	for _, t := range topics {
		names = append(names, t.Name)
	}
	f.requests = append(f.requests, names)
	f.busy++
	f.most = max(f.most, f.busy)
	hold, beating := f.hold, f.beating
	f.mu.Unlock()
	if beating != nil {
		<-beating
	}
	errs := make([]error, len(topics))
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			for i := range errs {
				errs[i] = ctx.Err()
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy--
	for i, t := range topics {
		if errs[i] == nil {
			errs[i] = f.errs[t.Name]
		}
		if errs[i] == nil {
			f.cluster.topic(t.Name, byte(100+i), t.Partitions)
		}
	}
	return errs
}

func (f *fakeCreator) asked() [][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

const missing = "Internal topics are missing: r, s"

// creating runs f in virtual time with a group g1 whose heartbeats ask for topics.
func creating(t *testing.T, topics []string, f func(t *testing.T, w *world, c *fakeCreator)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := &fakeCreator{cluster: w.cluster, errs: map[string]error{}}
		w.creation.creator, w.creation.now = c, time.Now
		w.shards.owned[1], w.shards.owned[2] = true, true
		w.shards.statuses = []kmsg.StreamsGroupHeartbeatResponseStatus{{StatusCode: 5, StatusDetail: "delayed"}, {StatusCode: 3, StatusDetail: missing}}
		for _, name := range topics {
			w.shards.create = append(w.shards.create, streams.CreatableTopic{Name: name, Partitions: 2, ReplicationFactor: -1})
		}
		f(t, w, c)
		w.Close()
	})
}

// detail sends a heartbeat, lets all that follows of it happen, and returns the text of status 3.
func (w *world) detail(t *testing.T, group string) string {
	t.Helper()
	var resp *kmsg.StreamsGroupHeartbeatResponse
	w.creation.creator.(*fakeCreator).during(func() { resp = w.Heartbeat(t.Context(), Caller{}, beat(group, 5)) })
	if resp.ErrorCode != 0 || len(resp.Status) != 2 || resp.Status[0].StatusDetail != "delayed" || resp.Status[1].StatusCode != 3 {
		t.Fatalf("response %+v", resp)
	}
	synctest.Wait()
	return resp.Status[1].StatusDetail
}

func refusal(code int16, text string) error { return &creationError{code: code, text: text} }

func TestInternalTopicsAreCreatedAndSeenAtOnce(t *testing.T) {
	creating(t, []string{"r", "s"}, func(t *testing.T, w *world, c *fakeCreator) {
		start := time.Now()
		if got := w.detail(t, "g1"); got != missing {
			t.Errorf("status %q", got)
		}
		if got, want := c.asked(), [][]string{{"r", "s"}}; !reflect.DeepEqual(got, want) {
			t.Errorf("asked for %v, want %v", got, want)
		}
		for _, name := range []string{"r", "s"} {
			if topic, ok := w.topics.Snapshot().Topic(name); !ok || topic.Partitions != 2 {
				t.Errorf("topic %s in the snapshot: %v %v", name, topic, ok)
			}
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("seen after %s", took)
		}
		// A handler that looked before they were there still lists them.
		if w.detail(t, "g1"); len(c.asked()) != 1 {
			t.Errorf("asked again: %v", c.asked())
		}
		if got := w.CreationStats(); got != (CreationStats{Created: 2}) {
			t.Errorf("counted %+v", got)
		}
	})
}

func TestNothingIsCreatedThatNoHeartbeatAskedFor(t *testing.T) {
	creating(t, nil, func(t *testing.T, w *world, c *fakeCreator) {
		w.Heartbeat(t.Context(), Caller{}, join("g1", "in", "r"))
		synctest.Wait()
		if n := len(c.asked()); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}

// A controller that does not answer holds up no heartbeat, and is asked once for each topic, whoever needs it.
func TestSlowCreationHoldsUpNobody(t *testing.T) {
	creating(t, []string{"r", "s"}, func(t *testing.T, w *world, c *fakeCreator) {
		c.hold = make(chan struct{})
		start := time.Now()
		for range 3 {
			for _, group := range []string{"g1", "g2"} {
				if got := w.detail(t, group); got != missing {
					t.Errorf("status %q", got)
				}
			}
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("heartbeats took %s", took)
		}
		w.shards.create = append(w.shards.create, streams.CreatableTopic{Name: "u", Partitions: 1})
		w.detail(t, "g2")
		if got, want := c.asked(), [][]string{{"r", "s"}, {"u"}}; !reflect.DeepEqual(got, want) {
			t.Errorf("asked for %v, want %v", got, want)
		}
		close(c.hold)
		synctest.Wait()
		if got := w.CreationStats().Created; got != 3 {
			t.Errorf("%d created", got)
		}
	})
}

// An answer that does not come is a failure after the time-out of the request and what it may need on its way.
func TestNoAnswerIsAFailure(t *testing.T) {
	creating(t, []string{"r"}, func(t *testing.T, w *world, c *fakeCreator) {
		c.hold = make(chan struct{})
		w.detail(t, "g1")
		time.Sleep(creationTimeout + creationGrace - time.Millisecond)
		if got := w.detail(t, "g1"); got != missing {
			t.Errorf("status %q before the end", got)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if got, want := w.detail(t, "g1"), missing+"; Creation failed: r (The cluster did not answer.)."; got != want {
			t.Errorf("status %q, want %q", got, want)
		}
	})
}

// Two heartbeat intervals, the interval being that of the group.
func TestFailedCreationIsBackedOff(t *testing.T) {
	for _, interval := range []time.Duration{5 * time.Second, time.Second} {
		creating(t, []string{"r", "s"}, func(t *testing.T, w *world, c *fakeCreator) {
			w.shards.interval = interval
			c.errs["s"] = refusal(38, "Replication factor is below 1.")
			const failed = missing + "; Creation failed: s (Replication factor is below 1.)."
			for _, step := range []struct {
				at       int // in heartbeat intervals
				status   string
				requests int
			}{
				{0, missing, 1},
				{1, failed, 1},
				{2, missing, 2}, // over: tried again, and the answer is not there yet
				{3, failed, 2},
				{4, missing, 3},
			} {
				if got := w.detail(t, "g1"); got != step.status {
					t.Errorf("at %d: status %q, want %q", step.at, got, step.status)
				}
				if got := c.asked(); len(got) != step.requests || len(got) > 1 && !slices.Equal(got[len(got)-1], []string{"s"}) {
					t.Errorf("at %d: asked for %v, want %d requests", step.at, got, step.requests)
				}
				time.Sleep(interval)
			}
			delete(c.errs, "s")
			time.Sleep(interval)
			w.detail(t, "g1")
			if got := w.detail(t, "g1"); got != missing || w.CreationStats() != (CreationStats{Created: 2, Failed: 3}) {
				t.Errorf("after it was created: status %q, %+v", got, w.CreationStats())
			}
		})
	}
}

// The back-off ends no earlier than two intervals after the failure.
func TestBackOffToTheMillisecond(t *testing.T) {
	creating(t, []string{"r"}, func(t *testing.T, w *world, c *fakeCreator) {
		c.errs["r"] = refusal(44, "no")
		w.detail(t, "g1")
		time.Sleep(10*time.Second - time.Millisecond)
		if got := w.detail(t, "g1"); got != missing+"; Creation failed: r (no)." || len(c.asked()) != 1 {
			t.Errorf("a millisecond before: %q, %d requests", got, len(c.asked()))
		}
		time.Sleep(time.Millisecond)
		if got := w.detail(t, "g1"); got != missing || len(c.asked()) != 2 {
			t.Errorf("at the end: %q, %d requests", got, len(c.asked()))
		}
	})
}

// What we may not create is told at every heartbeat, also while it is tried again.
func TestRefusedCreation(t *testing.T) {
	creating(t, []string{"r", "s", "u"}, func(t *testing.T, w *world, c *fakeCreator) {
		c.errs["r"], c.errs["s"] = refusal(29, "Authorization failed."), refusal(31, "Cluster authorization failed.")
		c.errs["u"] = refusal(44, "no")
		w.detail(t, "g1")
		for i := range 6 {
			time.Sleep(5 * time.Second)
			if got, want := w.detail(t, "g1"), missing+"; Unauthorized to CREATE on topics r, s."; got != want {
				t.Errorf("heartbeat %d: %q, want %q", i, got, want)
			}
		}
		clear(c.errs)
		time.Sleep(10 * time.Second)
		w.detail(t, "g1")
		if got := w.detail(t, "g1"); got != missing {
			t.Errorf("after it was allowed: %q", got)
		}
	})
}

func TestTopicThatExistsCountsAsCreated(t *testing.T) {
	creating(t, []string{"r"}, func(t *testing.T, w *world, c *fakeCreator) {
		c.errs["r"] = refusal(36, "Topic 'r' already exists.")
		w.cluster.topic("r", 50, 2)
		w.detail(t, "g1")
		if _, ok := w.topics.Snapshot().Topic("r"); !ok {
			t.Error("the topic is not in the snapshot")
		}
		if got := w.detail(t, "g1"); got != missing || w.CreationStats() != (CreationStats{}) {
			t.Errorf("status %q, %+v", got, w.CreationStats())
		}
	})
}

// A topic that the cluster has and does not show us is not asked for at every heartbeat, and its members learn why they wait.
func TestTopicThatExistsAndCanNotBeSeen(t *testing.T) {
	creating(t, []string{"r"}, func(t *testing.T, w *world, c *fakeCreator) {
		c.errs["r"] = refusal(36, "Topic 'r' already exists.")
		w.detail(t, "g1")
		time.Sleep(appearFor)
		synctest.Wait()
		if got, want := w.detail(t, "g1"), missing+"; Creation failed: r (Topic 'r' already exists.)."; got != want || len(c.asked()) != 1 {
			t.Errorf("status %q, want %q; %d requests", got, want, len(c.asked()))
		}
		time.Sleep(10 * time.Second)
		if w.detail(t, "g1"); len(c.asked()) != 2 {
			t.Errorf("%d requests after the back-off", len(c.asked()))
		}
	})
}

// The broker that is asked may hear of a topic later than we do.
func TestTopicThatBrokersHearOfLate(t *testing.T) {
	creating(t, []string{"r"}, func(t *testing.T, w *world, c *fakeCreator) {
		c.errs["r"] = refusal(36, "exists")
		w.detail(t, "g1")
		n := w.cluster.requests()
		time.Sleep(700 * time.Millisecond)
		if got := w.cluster.requests() - n; got < 3 || got > 5 {
			t.Errorf("asked %d times in 700 ms, want 4: after 25, 75, 175 and 375 ms", got)
		}
		w.cluster.topic("r", 50, 2)
		time.Sleep(200 * time.Millisecond)
		if _, ok := w.topics.Snapshot().Topic("r"); !ok {
			t.Error("the topic is not in the snapshot")
		}
		n = w.cluster.requests()
		if time.Sleep(time.Second); w.cluster.requests() > n+1 { // the poll
			t.Error("asked on although it was seen")
		}
	})
}

func TestStatusTexts(t *testing.T) {
	delayed := kmsg.StreamsGroupHeartbeatResponseStatus{StatusCode: 5, StatusDetail: "delayed"}
	three := func(detail string) kmsg.StreamsGroupHeartbeatResponseStatus {
		return kmsg.StreamsGroupHeartbeatResponseStatus{StatusCode: 3, StatusDetail: detail}
	}
	type list = []kmsg.StreamsGroupHeartbeatResponseStatus
	for _, c := range []struct {
		name            string
		refused, failed []string
		in, want        list
	}{
		{"one failed", nil, []string{"a (x)"}, list{three("m"), delayed}, list{three("m; Creation failed: a (x)."), delayed}},
		{"three failed", nil, []string{"a (x)", "b (y)", "c (z)"}, list{three("m")}, list{three("m; Creation failed: a (x), b (y), c (z).")}},
		{"five failed", nil, []string{"a (x)", "b (y)", "c (z)", "d (x)", "e (x)"}, list{delayed, three("m")},
			list{delayed, three("m; Creation failed: a (x), b (y), c (z) and 2 more.")}},
		{"failed without a status", nil, []string{"a (x)"}, list{delayed}, list{delayed}},
		{"refused", []string{"a", "b", "c", "d"}, nil, list{three("m"), delayed}, list{three("m; Unauthorized to CREATE on topics a, b, c, d."), delayed}},
		{"refused without a status", []string{"a"}, nil, list{delayed}, list{delayed, three("Unauthorized to CREATE on topics a.")}},
	} {
		given := slices.Clone(c.in)
		var got list
		if c.refused != nil {
			got = withRefused(c.in, c.refused)
		} else {
			got = withFailed(c.in, c.failed)
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		if !reflect.DeepEqual(c.in, given) {
			t.Errorf("%s: the statuses that were given have changed: %+v", c.name, c.in)
		}
	}
}

func TestFailuresAreRememberedByTheThousand(t *testing.T) {
	start := time.Unix(1000, 0)
	var f creationFailures
	put := func(i int, after time.Duration) {
		f.put(fmt.Sprintf("t%04d", i), creationFailure{text: "x", retryAt: start.Add(after)})
	}
	for i := range creationFailuresMax { // the later a topic fails, the earlier its back-off ends
		put(i, time.Hour-time.Duration(i)*time.Second)
	}
	put(0, time.Hour) // again: nothing is forgotten for it
	if n := len(f.byTopic); n != creationFailuresMax {
		t.Fatalf("%d failures", n)
	}
	put(5000, 2*time.Hour)
	put(5001, 2*time.Hour)
	if n := len(f.byTopic); n != creationFailuresMax {
		t.Errorf("%d failures", n)
	}
	for topic, want := range map[string]bool{"t0000": true, "t0997": true, "t0998": false, "t0999": false, "t5000": true, "t5001": true} {
		if got := f.held(start, topic); got != want {
			t.Errorf("%s held: %v, want %v", topic, got, want)
		}
	}
}

func TestCreationIsDividedIntoRequests(t *testing.T) {
	topics := func(counts ...int32) (list []streams.CreatableTopic) {
		for i, n := range counts {
			list = append(list, streams.CreatableTopic{Name: fmt.Sprint("t", i), Partitions: n})
		}
		return list
	}
	for _, c := range []struct {
		topics []streams.CreatableTopic
		want   []int
	}{
		{nil, nil},
		{topics(1), []int{1}},
		{topics(slices.Repeat([]int32{1}, creationTopicsPerRequest)...), []int{creationTopicsPerRequest}},
		{topics(slices.Repeat([]int32{1}, creationTopicsPerRequest+1)...), []int{creationTopicsPerRequest, 1}},
		{topics(slices.Repeat([]int32{creationPartitionsPerRequest / 2}, 5)...), []int{2, 2, 1}},
		{topics(creationPartitionsPerRequest*3, 1, creationPartitionsPerRequest*3), []int{1, 1, 1}},
	} {
		var got []int
		var all []streams.CreatableTopic
		for _, r := range requestsOf(c.topics) {
			got = append(got, len(r))
			all = append(all, r...)
		}
		if !slices.Equal(got, c.want) || !reflect.DeepEqual(all, c.topics) {
			t.Errorf("%d topics: requests of %v, want %v", len(c.topics), got, c.want)
		}
	}
}

// A cluster that does not answer costs bounded memory and requests; what did not fit is tried at a later heartbeat.
func TestCreationIsBounded(t *testing.T) {
	var names []string
	for i := range creationTopicsMax + 700 {
		names = append(names, fmt.Sprintf("t%05d", i))
	}
	creating(t, names, func(t *testing.T, w *world, c *fakeCreator) {
		c.hold = make(chan struct{})
		w.detail(t, "g1")
		w.detail(t, "g2")
		if n := len(w.creation.busy); n != creationTopicsMax {
			t.Errorf("%d topics are busy", n)
		}
		if n := len(c.asked()); n != creationRequestsMax {
			t.Errorf("%d requests are under way", n)
		}
		close(c.hold)
		time.Sleep(time.Second)
		w.detail(t, "g1")
		time.Sleep(time.Second)
		if got := w.CreationStats().Created; got != int64(len(names)) || c.most > creationRequestsMax || len(w.creation.busy) != 0 {
			t.Errorf("%d created, %d requests at a time, %d busy", got, c.most, len(w.creation.busy))
		}
	})
}

func TestCloseEndsTheCreation(t *testing.T) {
	creating(t, []string{"r"}, func(t *testing.T, w *world, c *fakeCreator) {
		c.hold = make(chan struct{})
		w.detail(t, "g1")
		start := time.Now()
		w.Close()
		if took := time.Since(start); took != 0 {
			t.Errorf("close took %s", took)
		}
		if got := w.detail(t, "g1"); got != missing || len(c.asked()) != 1 || w.CreationStats() != (CreationStats{}) {
			t.Errorf("after close: %q, %d requests, %+v", got, len(c.asked()), w.CreationStats())
		}
	})
}

// controller answers CreateTopics.
type controller struct {
	req  *kmsg.CreateTopicsRequest
	resp *kmsg.CreateTopicsResponse
	err  error
}

func (c *controller) Request(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
	c.req = r.(*kmsg.CreateTopicsRequest)
	if c.err != nil {
		return nil, c.err
	}
	return c.resp, nil
}

func TestCreateTopicsRequest(t *testing.T) {
	c := &controller{resp: kmsg.NewPtrCreateTopicsResponse()}
	answer := func(name string, code int16, text *string) {
		rt := kmsg.NewCreateTopicsResponseTopic()
		rt.Topic, rt.ErrorCode, rt.ErrorMessage = name, code, text
		c.resp.Topics = append(c.resp.Topics, rt)
	}
	answer("policy", 44, kmsg.StringPtr("Not like this."))
	answer("allowed", 29, kmsg.StringPtr("Authorization failed."))
	answer("exists", 36, nil)
	answer("empty", 38, kmsg.StringPtr(""))
	answer("made", 0, nil)
	topics := []streams.CreatableTopic{
		{Name: "made", Partitions: 3, ReplicationFactor: 2, Configs: []eventlog.KeyValue{{Key: "cleanup.policy", Value: "compact"}, {Key: "retention.ms", Value: "-1"}}},
		{Name: "exists", Partitions: 1, ReplicationFactor: -1}, {Name: "allowed"}, {Name: "policy"}, {Name: "empty"}, {Name: "forgotten"},
	}
	errs := UpstreamCreator{c}.CreateTopics(t.Context(), topics)
	if c.req.TimeoutMillis != 30_000 || c.req.ValidateOnly || len(c.req.Topics) != len(topics) {
		t.Errorf("request %+v", c.req)
	}
	want := kmsg.NewCreateTopicsRequestTopic()
	want.Topic, want.NumPartitions, want.ReplicationFactor = "made", 3, 2
	want.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "cleanup.policy", Value: kmsg.StringPtr("compact")}, {Name: "retention.ms", Value: kmsg.StringPtr("-1")}}
	if !reflect.DeepEqual(c.req.Topics[0], want) {
		t.Errorf("topic %+v, want %+v", c.req.Topics[0], want)
	}
	if errs[0] != nil {
		t.Errorf("made: %v", errs[0])
	}
	for i, text := range []string{1: kerr.TopicAlreadyExists.Description, 2: "Authorization failed.", 3: "Not like this.", 4: kerr.InvalidReplicationFactor.Description, 5: "The cluster did not answer."} {
		if i == 0 {
			continue
		}
		if errs[i] == nil || clientText(errs[i]) != text {
			t.Errorf("%s: %v, want %q", topics[i].Name, errs[i], text)
			continue
		}
		if exists := errors.Is(errs[i], errTopicExists); exists != (i == 1) {
			t.Errorf("%s: exists %v", topics[i].Name, exists)
		}
		if refused := errors.Is(errs[i], errNotAllowed); refused != (i == 2) {
			t.Errorf("%s: refused %v", topics[i].Name, refused)
		}
	}

	c.err = errors.New("dial tcp 10.0.0.7:9092: connection refused")
	for i, err := range (UpstreamCreator{c}).CreateTopics(t.Context(), topics) {
		if !errors.Is(err, errNoAnswer) || !strings.Contains(err.Error(), "refused") || clientText(err) != "The cluster did not answer." {
			t.Errorf("topic %d: %v", i, err)
		}
	}
}
