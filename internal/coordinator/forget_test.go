package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/internal/wire"
	"streamkeeper/projection"
	"streamkeeper/shard"
)

// forgetWorld is a replica that owns the ownership group's shard, beside 1000002, which is alive and owns a shard, and 1000003, which is gone.
func forgetWorld(t *testing.T) (w *world, group int32) {
	w = newWorld(t)
	group = w.shards.Partition(shard.OwnershipGroup(w.LogTopic()))
	w.shards.owned[group] = true
	w.replicas = []eventlog.Owner{owner(1000002, "b:1", w.now), owner(1000003, "c:1", w.now.Add(-time.Hour)), owner(1000004, "d:1", w.now.Add(-25*time.Hour))}
	w.shards.owners[2] = owner(1000002, "b:1", w.now)
	w.shards.inGroup = []shard.GroupMember{{NodeID: 1000001, Address: "keeper:9292"}, {NodeID: 1000002, Address: "b:1", ClientHost: "/10.0.0.2"}, {NodeID: -1}}
	return w, group
}

func TestReplicaThatIsGoneIsForgotten(t *testing.T) {
	w, _ := forgetWorld(t)
	for range 2 { // the second time there is nothing to do
		if resp := w.UnregisterBroker(t.Context(), Caller{}, 1000003); resp.ErrorCode != 0 || resp.ErrorMessage != nil {
			t.Fatalf("%+v", resp)
		}
	}
	if n := len(slices.DeleteFunc(slices.Clone(w.shards.calls), func(c string) bool { return c != "forget 1000003" })); n != 1 {
		t.Errorf("it was written %d times: %q", n, w.shards.calls)
	}
	if got, want := w.Nodes(), []Node{{1000001, "keeper", 9292}, {1000002, "b", 1}}; !reflect.DeepEqual(got, want) {
		t.Errorf("nodes %v, want %v", got, want)
	}
	w.replicas[1].Timestamp = w.now.UnixMilli() // it claims again
	if got := w.Nodes(); len(got) != 3 {
		t.Errorf("it is back, and the nodes are %v", got)
	}
	w.shards.forgotten[1000002] = w.replicas[0].Timestamp
	if got := w.Nodes(); len(got) != 3 {
		t.Errorf("a forgotten one owns a shard, and the nodes are %v", got)
	}
}

// Who claims while it is being forgotten is judged again, and is alive.
func TestReplicaThatComesBackMeanwhileIsNotForgotten(t *testing.T) {
	w, group := forgetWorld(t)
	var once sync.Once
	w.shards.barrier = func() error {
		if w.shards.forgotten[1000003] != 0 { // what the barrier after it reads
			once.Do(func() {
				w.replicas[1].Timestamp = w.now.UnixMilli()
				w.shards.owners[3] = owner(1000003, "c:1", w.now)
			})
		}
		return nil
	}
	if resp := w.UnregisterBroker(t.Context(), Caller{}, 1000003); resp.ErrorCode != codeBrokerInUse || !strings.Contains(*resp.ErrorMessage, "owns shards") {
		t.Errorf("%+v; the shard is %d", resp, group)
	}
}

func TestWhoIsNotForgotten(t *testing.T) {
	for _, c := range []struct {
		why    string
		node   int32
		change func(w *world)
		code   int16
		want   string
	}{
		{"the replica that is asked", 1000001, nil, codeBrokerInUse, "Node 1000001 is a replica that runs: stop it first."},
		{"a member of the group", 1000002, nil, codeBrokerInUse, "Node 1000002 is in the ownership group, as b:1 on 10.0.0.2: stop it first."},
		{"a dead owner", 1000002, func(w *world) { w.shards.inGroup = nil }, codeBrokerInUse, "Node 1000002 owns shards that no other replica has taken over yet"},
		{"a stranger", 7, nil, codeNoBroker, "No replica with node id 7 was seen within the last day. Seen were 1000002, 1000003."},
		{"one that is not listed any more", 1000004, nil, codeNoBroker, "No replica with node id 1000004 was seen within the last day."},
		{"what is no id, with a client that is no replica in the group", -1, nil, codeNoBroker, "-1 is no node id."},
		{"one while the cluster does not say who is there", 1000003, func(w *world) { w.shards.err["members"] = errors.New("away") }, codeTimedOut, "The cluster does not tell who is in the ownership group."},
		{"one while the log can't be read", 1000003, func(w *world) { w.shards.barrier = func() error { return errors.New("away") } }, codeTimedOut, "The record log can't be read to its end."},
		{"one while nothing can be written", 1000003, func(w *world) { w.shards.err["forget"] = shard.ErrLoading }, codeTimedOut, "try again"},
	} {
		t.Run(c.why, func(t *testing.T) {
			w, _ := forgetWorld(t)
			if c.change != nil {
				c.change(w)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*alterPause)
			defer cancel()
			resp := w.UnregisterBroker(ctx, Caller{}, c.node)
			if resp.ErrorCode != c.code || resp.ErrorMessage == nil || !strings.Contains(*resp.ErrorMessage, c.want) {
				t.Errorf("code %d %v, want %d %q", resp.ErrorCode, resp.ErrorMessage, c.code, c.want)
			}
			if len(w.shards.forgotten) > 0 {
				t.Errorf("%v is forgotten", w.shards.forgotten)
			}
		})
	}
}

// Whoever owns the shard judges and writes; the question is asked again while the shard moves, and sent on once.
func TestForgettingElsewhere(t *testing.T) {
	inWorld := func(t *testing.T, test func(t *testing.T, w *world, group int32, p *fakePeers)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			shards, p := newFakeShards(), &fakePeers{}
			w := &world{shards: shards}
			w.Coordinator = New(Config{Node: Node{ID: 1000001}, LogTopic: "__streams_groups", Shards: shards, Peers: p, Replicas: func() []eventlog.Owner { return nil }})
			group := shards.Partition(shard.OwnershipGroup(w.LogTopic()))
			shards.owners[group] = owner(1000002, "other:9393", time.Now())
			test(t, w, group, p)
		})
	}
	answer := func(code int16, text string, ours bool) kmsg.Response {
		resp := kmsg.NewPtrUnregisterBrokerResponse()
		resp.ErrorCode, resp.ErrorMessage = code, &text
		if ours {
			wire.MarkForgetResponse(resp)
		}
		return resp
	}
	inWorld(t, func(t *testing.T, w *world, group int32, p *fakePeers) {
		p.answer = func(n int, _ Node, r kmsg.Request) (kmsg.Response, error) {
			if node, ok := wire.ForgottenNode(r.(*kmsg.UnregisterBrokerRequest)); !ok || node != 1000003 {
				t.Errorf("asked %+v", r)
			}
			switch n {
			case 1:
				return nil, net.ErrClosed
			case 2:
				w.shards.owners[group] = owner(1000004, "third:9494", time.Now())
				return answer(codeNotCoordinator, "", true), nil
			}
			return answer(codeBrokerInUse, "it runs", true), nil
		}
		resp := w.UnregisterBroker(t.Context(), Caller{}, 1000003)
		if resp.ErrorCode != codeBrokerInUse || *resp.ErrorMessage != "it runs" {
			t.Errorf("%+v", resp)
		}
		if want := []string{"1000002@other:9393", "1000002@other:9393", "1000004@third:9494"}; !slices.Equal(p.sent, want) {
			t.Errorf("sent to %q", p.sent)
		}
	})
	inWorld(t, func(t *testing.T, w *world, _ int32, p *fakePeers) { // an older replica looks for a broker -1
		p.answer = func(int, Node, kmsg.Request) (kmsg.Response, error) { return answer(codeNoBroker, "none", false), nil }
		resp := w.UnregisterBroker(t.Context(), Caller{}, 1000003)
		if resp.ErrorCode != codeUnsupported || !strings.Contains(*resp.ErrorMessage, "Replica 1000002 at other:9393") {
			t.Errorf("%+v", resp)
		}
	})
	inWorld(t, func(t *testing.T, w *world, _ int32, p *fakePeers) { // from another replica
		resp := w.UnregisterBroker(t.Context(), Caller{ClientID: peerClientID + "1000005"}, 1000003)
		if resp.ErrorCode != codeNotCoordinator || len(p.sent) > 0 {
			t.Errorf("%+v, sent to %q", resp, p.sent)
		}
	})
	inWorld(t, func(t *testing.T, w *world, _ int32, p *fakePeers) { // the owner is away
		p.answer = func(int, Node, kmsg.Request) (kmsg.Response, error) { return nil, net.ErrClosed }
		began := time.Now()
		resp := w.UnregisterBroker(t.Context(), Caller{}, 1000003)
		if took := time.Since(began); resp.ErrorCode != codeTimedOut || took != alterTimeout || !strings.Contains(*resp.ErrorMessage, "other:9393") {
			t.Errorf("%+v after %v", resp, took)
		}
	})
}

// writingShards write that a replica is forgotten, and do not apply it.
type writingShards struct {
	*fakeShards
	forget func()
}

func (s *writingShards) Forget(context.Context, eventlog.Owner) error {
	s.forget()
	return nil
}

// What is written and can't be read by who wrote it, because the cluster lets it read no more, say, is not called unsettled for an unknown reason: the operator is
// told that it is written, and where the shard has moved on the next owner says that it is done.
func TestForgettingByAReplicaThatCanNotReadWhatItWrote(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		moves bool
	}{
		{"blind", fmt.Errorf("%w: no right", shard.ErrBlind), false},
		{"blind, and the shard moves", fmt.Errorf("%w: no right", shard.ErrBlind), true},
		{"no answer", context.DeadlineExceeded, false},
		{"full", projection.ErrStorage, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shards, p, now := &writingShards{fakeShards: newFakeShards()}, &fakePeers{}, time.Now()
				log := &strings.Builder{}
				w := New(Config{
					Node: Node{ID: 1000001}, LogTopic: "__streams_groups", Shards: shards, Peers: p, Logger: slog.New(slog.NewTextHandler(log, nil)),
					Replicas: func() []eventlog.Owner { return []eventlog.Owner{owner(1000003, "c:1", now)} },
				})
				group := shards.Partition(shard.OwnershipGroup(w.LogTopic()))
				shards.owned[group] = true
				var written atomic.Bool
				shards.barrier = func() error {
					if written.Load() {
						return c.err
					}
					return nil
				}
				shards.forget = func() {
					written.Store(true)
					if c.moves {
						shards.owned[group], shards.owners[group] = false, owner(1000002, "next:9393", now)
					}
				}
				p.answer = func(int, Node, kmsg.Request) (kmsg.Response, error) {
					resp := kmsg.NewPtrUnregisterBrokerResponse()
					wire.MarkForgetResponse(resp)
					return resp, nil
				}
				resp := w.UnregisterBroker(t.Context(), Caller{}, 1000003)
				switch {
				case c.moves && resp.ErrorCode != 0:
					t.Errorf("%+v", resp)
				case !c.moves && (resp.ErrorCode != codeTimedOut || !strings.Contains(*resp.ErrorMessage, "written down")):
					t.Errorf("code %d %v", resp.ErrorCode, resp.ErrorMessage)
				}
				if log.Len() > 0 {
					t.Errorf("logged: %s", log)
				}
			})
		})
	}
}
