package client

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A node that dies and is then taken out of the metadata is not waited for, and its groups are found at who has taken them over.
func TestListGoesOnWithoutANodeThatHasLeft(t *testing.T) {
	c := startFake(t, 2)
	var asked1, asked2 atomic.Int32
	c.on(16, func(at int32, _ kmsg.Request) kmsg.Response {
		if at == 2 {
			asked2.Add(1)
			return nil // the connection breaks
		}
		resp := kmsg.NewPtrListGroupsResponse()
		if asked1.Add(1) > 1 { // node 2's shards have been taken over
			g := kmsg.NewListGroupsResponseGroup()
			g.Group, g.ProtocolType, g.GroupType, g.GroupState = "a", "streams", "streams", "Stable"
			resp.Groups = append(resp.Groups, g)
		}
		return resp
	})
	c.on(3, func(at int32, req kmsg.Request) kmsg.Response {
		resp := c.metadata(at, req).(*kmsg.MetadataResponse)
		if asked2.Load() > 2 {
			resp.Brokers = resp.Brokers[:1]
		}
		return resp
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	got, err := NewAdmin(c.client()).ListStreamsGroups(ctx)
	if err != nil || len(got) != 1 || got[0] != (ListedGroup{"a", "Stable", c.node(1)}) {
		t.Errorf("%+v, %v", got, err)
	}
	if n := asked1.Load(); n != 2 {
		t.Errorf("node 1 was asked %d times", n)
	}

	// As long as it is listed, its groups are missing and the error says so.
	c.on(3, c.metadata)
	ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if got, err := NewAdmin(c.client()).ListStreamsGroups(ctx); err == nil || len(got) != 1 || !strings.Contains(err.Error(), c.node(2).String()) {
		t.Errorf("%+v, %v", got, err)
	}
}

// A node that hangs, whose connections open and stay silent, is asked again only as long as it is listed.
func TestListGoesOnWithoutANodeThatHangs(t *testing.T) {
	c := startFake(t, 3)
	var asked1 atomic.Int32
	var taken atomic.Bool
	hangs := func() kmsg.Response {
		<-t.Context().Done()
		return nil
	}
	c.on(16, func(at int32, _ kmsg.Request) kmsg.Response {
		switch at {
		case 1:
			asked1.Add(1)
		case 2:
			return hangs()
		}
		resp := kmsg.NewPtrListGroupsResponse()
		if at == 3 && taken.Load() {
			g := kmsg.NewListGroupsResponseGroup()
			g.Group, g.ProtocolType, g.GroupType, g.GroupState = "a", "streams", "streams", "Stable"
			resp.Groups = append(resp.Groups, g)
		}
		return resp
	})
	c.on(3, func(at int32, req kmsg.Request) kmsg.Response {
		if at == 2 {
			return hangs()
		}
		resp := c.metadata(at, req).(*kmsg.MetadataResponse)
		if taken.Load() {
			resp.Brokers = append(resp.Brokers[:1], resp.Brokers[2])
		}
		return resp
	})
	const timeout = 3 * time.Second // kgo's, of a request: no answer of a slow machine takes as long
	time.AfterFunc(timeout/2, func() { taken.Store(true) })
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	got, err := NewAdmin(c.client(kgo.RequestTimeoutOverhead(timeout))).ListStreamsGroups(ctx)
	if err != nil || len(got) != 1 || got[0] != (ListedGroup{"a", "Stable", c.node(3)}) {
		t.Errorf("%+v, %v", got, err)
	}
	// One time-out of the node that hangs and a pause; what is beyond is for slow machines.
	if took := time.Since(began); took > 20*time.Second || asked1.Load() != 2 {
		t.Errorf("it took %v; node 1 was asked %d times", took, asked1.Load())
	}
}

// A group that a former owner lists still is its coordinator's, whoever answers last.
func TestListOfAGroupThatMoved(t *testing.T) {
	for last := range int32(2) {
		c := startFake(t, 2)
		c.place("a", 2)
		c.on(16, func(at int32, _ kmsg.Request) kmsg.Response {
			if at == last+1 {
				time.Sleep(50 * time.Millisecond) // so that it answers after the other
			}
			resp := kmsg.NewPtrListGroupsResponse()
			g := kmsg.NewListGroupsResponseGroup()
			g.Group, g.ProtocolType, g.GroupType, g.GroupState = "a", "streams", "streams", []string{"Empty", "Stable"}[at-1]
			resp.Groups = append(resp.Groups, g)
			return resp
		})
		got, err := NewAdmin(c.client()).ListStreamsGroups(t.Context())
		if err != nil || len(got) != 1 || got[0] != (ListedGroup{"a", "Stable", c.node(2)}) {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

// Where nobody can be asked which nodes there are, the error names no node.
func TestListOfAClusterThatIsAway(t *testing.T) {
	c := startFake(t, 1)
	c.brokers[0].ln.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := NewAdmin(c.client()).ListStreamsGroups(ctx); err == nil || !strings.HasPrefix(err.Error(), "list the nodes: ") {
		t.Errorf("%v", err)
	}
}
