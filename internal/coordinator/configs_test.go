package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/projection"
	"streamkeeper/shard"
)

func groupResource(group string, names ...string) kmsg.DescribeConfigsRequestResource {
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeGroupConfig, group, names
	return r
}

// setRequest sets configurations, "group name value" each.
func setRequest(changes ...[3]string) *kmsg.IncrementalAlterConfigsRequest {
	r := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r.Version = 1
	for _, c := range changes {
		res := kmsg.NewIncrementalAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, c[0]
		x := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		x.Name, x.Value = c[1], &c[2]
		res.Configs = append(res.Configs, x)
		r.Resources = append(r.Resources, res)
	}
	return r
}

// outcomes are "group code text" of each resource.
func outcomes(resp *kmsg.IncrementalAlterConfigsResponse) (out []string) {
	for _, r := range resp.Resources {
		text := "null"
		if r.ErrorMessage != nil {
			text = *r.ErrorMessage
		}
		out = append(out, fmt.Sprintf("%s %d %s", r.ResourceName, r.ErrorCode, text))
	}
	return out
}

func TestDescribeConfigsAfterABarrier(t *testing.T) {
	w := newWorld(t)
	w.shards.configs["g1"] = map[string]string{"streams.num.standby.replicas": "2", "streams.num.warmup.replicas": "3"}
	r := kmsg.NewPtrDescribeConfigsRequest()
	r.Version, r.IncludeSynonyms, r.IncludeDocumentation = 4, true, true
	r.Resources = []kmsg.DescribeConfigsRequestResource{
		groupResource("g1", "streams.num.standby.replicas", "streams.num.warmup.replicas", "streams.task.offset.interval.ms"), groupResource("")}
	resp := w.DescribeConfigs(t.Context(), Caller{}, r)
	g := resp.Resources[0]
	if g.ErrorCode != 0 || g.ErrorMessage == nil || *g.ErrorMessage != "" || len(g.Configs) != 2 {
		t.Fatalf("%+v", g)
	}
	want := kmsg.NewDescribeConfigsResponseResourceConfig()
	want.Name, want.Value, want.Source, want.ConfigType = "streams.num.standby.replicas", kmsg.StringPtr("2"), kmsg.ConfigSourceGroupConfig, kmsg.ConfigTypeInt
	want.Documentation = kmsg.StringPtr("standby tasks per stateful task")
	for _, y := range []struct {
		name, value string
		source      kmsg.ConfigSource
	}{{"streams.num.standby.replicas", "2", kmsg.ConfigSourceGroupConfig}, {"group.streams.num.standby.replicas", "0", kmsg.ConfigSourceDefaultConfig}} {
		s := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
		s.Name, s.Value, s.Source = y.name, &y.value, y.source
		want.ConfigSynonyms = append(want.ConfigSynonyms, s)
	}
	if !reflect.DeepEqual(g.Configs[0], want) {
		t.Errorf("got  %+v\nwant %+v", g.Configs[0], want)
	}
	if e := resp.Resources[1]; e.ErrorCode != 42 || *e.ErrorMessage != "Group name must not be empty" {
		t.Errorf("no name: %+v", e)
	}
	if !slices.Equal(w.shards.calls, []string{"barrier 1"}) {
		t.Errorf("asked: %q", w.shards.calls)
	}
	w.shards.calls = nil
	many := kmsg.NewPtrDescribeConfigsRequest()
	for range 1000 {
		many.Resources = append(many.Resources, groupResource("g1"), groupResource("g2"))
	}
	if resp := w.DescribeConfigs(t.Context(), Caller{}, many); len(resp.Resources) != 2000 || resp.Resources[1998].Configs == nil || len(w.shards.calls) > 2 {
		t.Errorf("%d resources of two groups cost %d barriers", len(resp.Resources), len(w.shards.calls))
	}
	w.shards.failing = projection.ErrLoading
	if resp := w.DescribeConfigs(t.Context(), Caller{}, r); resp.Resources[0].ErrorCode != codeLoading {
		t.Errorf("while the projection is read: %+v", resp.Resources[0])
	}
}

func TestListConfigResources(t *testing.T) {
	w := newWorld(t)
	for _, g := range []string{"c1", "a9", "b1"} {
		w.shards.configs[g] = map[string]string{"streams.num.standby.replicas": "1"}
	}
	r := kmsg.NewPtrListConfigResourcesRequest()
	r.Version = 1
	var got []string
	for _, c := range w.ListConfigResources(t.Context(), Caller{}, r).ConfigResources {
		got = append(got, fmt.Sprintf("%d %s", c.Type, c.Name))
	}
	if want := []string{"32 a9", "32 b1", "32 c1"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	w.shards.barrier = func() error { return errors.New("no log") }
	if resp := w.ListConfigResources(t.Context(), Caller{}, r); resp.ErrorCode == 0 || len(resp.ConfigResources) != 0 {
		t.Errorf("without a log: %+v", resp)
	}
}

func TestAlterHere(t *testing.T) {
	w := newWorld(t)
	w.shards.err["lost2"] = errors.New("odd")
	got := outcomes(w.IncrementalAlterConfigs(t.Context(), Caller{}, setRequest([3]string{"g1", "streams.num.standby.replicas", "1"},
		[3]string{"g2", "streams.num.standby.replicas", "9"}, [3]string{"", "streams.num.standby.replicas", "1"}, [3]string{"a\xff1", "streams.num.standby.replicas", "1"}, [3]string{"lost2", "streams.num.standby.replicas", "1"})))
	want := []string{"g1 0 null", "g2 40 streams.num.standby.replicas must be less than or equal to 2", " 42 Default group resources are not allowed.", "a\xff1 42 The group id is no valid UTF-8.", "lost2 -1 null"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	a := kmsg.NewPtrAlterConfigsRequest()
	res := kmsg.NewAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, "g1"
	x := kmsg.NewAlterConfigsRequestResourceConfig()
	x.Name, x.Value = "streams.session.timeout.ms", kmsg.StringPtr("50000")
	res.Configs = append(res.Configs, x)
	a.Resources = append(a.Resources, res)
	a.ValidateOnly = true
	if resp := w.AlterConfigs(t.Context(), Caller{}, a); resp.Resources[0].ErrorCode != 0 || len(w.shards.configs["g1"]) != 1 || w.shards.configs["g1"]["streams.num.standby.replicas"] != "1" {
		t.Errorf("only asked: %+v, %v", resp, w.shards.configs["g1"])
	}
	a.ValidateOnly = false
	if resp := w.AlterConfigs(t.Context(), Caller{}, a); resp.Resources[0].ErrorCode != 0 || !reflect.DeepEqual(w.shards.configs["g1"], map[string]string{"streams.session.timeout.ms": "50000"}) {
		t.Errorf("replaced: %+v, %v", resp, w.shards.configs["g1"])
	}
}

// fakePeers answers in the place of other replicas.
type fakePeers struct {
	mu     sync.Mutex
	sent   []string
	answer func(n int, to Node, r kmsg.Request) (kmsg.Response, error)
}

func (p *fakePeers) Request(_ context.Context, to Node, r kmsg.Request) (kmsg.Response, error) {
	p.mu.Lock()
	p.sent = append(p.sent, fmt.Sprintf("%d@%s:%d", to.ID, to.Host, to.Port))
	n := len(p.sent)
	p.mu.Unlock()
	return p.answer(n, to, r)
}
func (p *fakePeers) Close() {}

func alterAnswer(r kmsg.Request, code int16, text *string) kmsg.Response {
	req := r.(*kmsg.IncrementalAlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	for _, asked := range req.Resources {
		a := kmsg.NewIncrementalAlterConfigsResponseResource()
		a.ResourceType, a.ResourceName, a.ErrorCode, a.ErrorMessage = asked.ResourceType, asked.ResourceName, code, text
		resp.Resources = append(resp.Resources, a)
	}
	return resp
}

// A change goes to whoever owns the shard, is repeated while the shard moves, and is given up in time with a reason.
func TestAlterThere(t *testing.T) {
	owner := func(id int32, address string) eventlog.Owner {
		return eventlog.Owner{Ownership: eventlog.Ownership{NodeID: id, Address: address}}
	}
	request := setRequest([3]string{"g1", "streams.num.standby.replicas", "1"})
	inWorld := func(t *testing.T, test func(t *testing.T, w *world, p *fakePeers)) {
		synctest.Test(t, func(t *testing.T) {
			shards, p := newFakeShards(), &fakePeers{}
			shards.err["g1"] = shard.ErrNotOwner
			w := &world{shards: shards}
			w.Coordinator = New(Config{Node: Node{ID: 1000001}, Shards: shards, Peers: p})
			test(t, w, p)
		})
	}
	inWorld(t, func(t *testing.T, w *world, p *fakePeers) {
		w.shards.owners[1] = owner(1000002, "other:9393")
		p.answer = func(_ int, _ Node, r kmsg.Request) (kmsg.Response, error) {
			if r.(*kmsg.IncrementalAlterConfigsRequest).Resources[0].Configs[0].Name != "streams.num.standby.replicas" {
				t.Error("another change than asked")
			}
			return alterAnswer(r, 40, kmsg.StringPtr("no")), nil
		}
		if got := outcomes(w.IncrementalAlterConfigs(t.Context(), Caller{}, request)); !slices.Equal(got, []string{"g1 40 no"}) {
			t.Errorf("the owner refuses: %q", got)
		}
		if !slices.Equal(p.sent, []string{"1000002@other:9393"}) {
			t.Errorf("sent to %q", p.sent)
		}
	})
	inWorld(t, func(t *testing.T, w *world, p *fakePeers) { // the shard moves while the change is under way
		w.shards.owners[1] = owner(1000002, "other:9393")
		p.answer = func(n int, _ Node, r kmsg.Request) (kmsg.Response, error) {
			switch n {
			case 1:
				return nil, net.ErrClosed
			case 2:
				w.shards.owners[1] = owner(1000003, "third:9494")
				return alterAnswer(r, codeNotCoordinator, nil), nil
			}
			return alterAnswer(r, 0, nil), nil
		}
		if got := outcomes(w.IncrementalAlterConfigs(t.Context(), Caller{}, request)); !slices.Equal(got, []string{"g1 0 null"}) {
			t.Errorf("after the move: %q", got)
		}
		if want := []string{"1000002@other:9393", "1000002@other:9393", "1000003@third:9494"}; !slices.Equal(p.sent, want) {
			t.Errorf("sent to %q", p.sent)
		}
	})
	inWorld(t, func(t *testing.T, w *world, p *fakePeers) { // nobody owns the shard
		began := time.Now()
		got := w.IncrementalAlterConfigs(t.Context(), Caller{}, request).Resources[0]
		if took := time.Since(began); got.ErrorCode != codeUnavailable || got.ErrorMessage == nil || took != alterTimeout {
			t.Errorf("%+v after %v", got, took)
		}
		if len(p.sent) > 0 {
			t.Errorf("sent to %q", p.sent)
		}
	})
	inWorld(t, func(t *testing.T, w *world, p *fakePeers) { // nobody owns the shards of a thousand groups: the request has one time-out, not each
		var changes [][3]string
		for i := range 1000 {
			group := fmt.Sprintf("lost-%d", i)
			w.shards.err[group] = shard.ErrNotOwner
			changes = append(changes, [3]string{group, "streams.num.standby.replicas", "1"})
		}
		began := time.Now()
		resp := w.IncrementalAlterConfigs(t.Context(), Caller{}, setRequest(changes...))
		if took := time.Since(began); took != alterTimeout {
			t.Errorf("%v", took)
		}
		for _, r := range resp.Resources {
			if r.ErrorCode != codeUnavailable || r.ErrorMessage == nil {
				t.Fatalf("%+v", r)
			}
		}
	})
	inWorld(t, func(t *testing.T, w *world, p *fakePeers) { // what another replica has sent on goes no further
		w.shards.owners[1] = owner(1000002, "other:9393")
		if got := outcomes(w.IncrementalAlterConfigs(t.Context(), Caller{ClientID: peerClientID + "1000002"}, request)); !slices.Equal(got, []string{"g1 16 null"}) {
			t.Errorf("from a replica: %q", got)
		}
		if len(p.sent) > 0 {
			t.Errorf("sent to %q", p.sent)
		}
	})
}

// The number of replicas for which clients are kept is bounded, and what is closed says so.
func TestPeersAreBounded(t *testing.T) {
	p := NewKafkaPeers(7)
	for i := range 3 * peersMax {
		c, err := p.peer(fmt.Sprintf("127.0.0.1:%d", 1+i))
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			p.release(c)
		}
	}
	if n := len(p.clients); n > peersMax+3*peersMax/2 {
		t.Errorf("%d clients are kept", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := p.Request(ctx, Node{7, "127.0.0.1", 1}, setRequest()); err == nil {
		t.Error("nobody listens there")
	}
	p.Close()
	if _, err := p.Request(ctx, Node{7, "127.0.0.1", 1}, setRequest()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A replica that may not read the log says what passes: another may read it.
func TestConfigsAtAReplicaThatMayNotRead(t *testing.T) {
	w := newWorld(t)
	w.shards.barrier = func() error { return fmt.Errorf("%w: no right", shard.ErrBlind) }
	r := kmsg.NewPtrDescribeConfigsRequest()
	r.Resources = []kmsg.DescribeConfigsRequestResource{groupResource("g1")}
	if resp := w.DescribeConfigs(t.Context(), Caller{}, r); resp.Resources[0].ErrorCode != codeUnavailable {
		t.Errorf("described: %+v", resp)
	}
	if resp := w.ListConfigResources(t.Context(), Caller{}, kmsg.NewPtrListConfigResourcesRequest()); resp.ErrorCode != codeUnavailable {
		t.Errorf("listed: %+v", resp)
	}
}
