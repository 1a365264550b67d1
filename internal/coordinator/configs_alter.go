package coordinator

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/shard"
	"streamkeeper/shard/groupconfig"
	"streamkeeper/shard/streams"
)

// Clients send changes of a group's configuration to any broker, the least busy one, and don't try again where that one is the wrong one. So
// a replica that does not own the group's shard sends them on to the one that does, as a broker sends them to the controller.

const (
	// alterTimeout bounds the search for owners who take the changes of a request: below the request time-outs of clients (Java's 30 s, franz-go's 10 s),
	// so that they get an answer.
	alterTimeout = 9 * time.Second
	// alterPause is the time between two attempts while a shard moves; that takes a second or two.
	alterPause = 200 * time.Millisecond
	// defaultGroupText is what Kafka 4.4 says of a GROUP resource without a name when it is altered.
	defaultGroupText = "Default group resources are not allowed."
	// oddGroupText: Kafka would have made another id of it.
	oddGroupText = "The group id is no valid UTF-8."
)

// alteration is one change of one group's configuration.
type alteration struct {
	group        string
	validateOnly bool
	alter        func(b *groupconfig.Broker, current map[string]string) (map[string]string, *streams.Error)
	// request is the same change for another replica; code reads its answer.
	request func() kmsg.Request
	code    func(kmsg.Response) (int16, *string, bool)
}

// IncrementalAlterConfigs changes what is configured for groups. The fate of one does not affect another.
func (c *Coordinator) IncrementalAlterConfigs(ctx context.Context, who Caller, r *kmsg.IncrementalAlterConfigsRequest) *kmsg.IncrementalAlterConfigsResponse {
	ctx, cancel := context.WithTimeout(ctx, alterTimeout)
	defer cancel()
	resp := r.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	resp.Resources = make([]kmsg.IncrementalAlterConfigsResponseResource, len(r.Resources))
	fanout(len(r.Resources), func(i int) {
		asked := &r.Resources[i]
		changes := make([]groupconfig.Change, len(asked.Configs))
		for j, a := range asked.Configs {
			changes[j] = groupconfig.Change{Op: groupconfig.Op(a.Op), Name: a.Name}
			if a.Value != nil {
				changes[j].Value = *a.Value
			}
		}
		f := c.alterConfig(ctx, who, alteration{
			group: asked.ResourceName, validateOnly: r.ValidateOnly,
			alter: func(b *groupconfig.Broker, current map[string]string) (map[string]string, *streams.Error) {
				return b.Alter(current, changes)
			},
			request: func() kmsg.Request {
				one := kmsg.NewPtrIncrementalAlterConfigsRequest()
				one.Resources, one.ValidateOnly = []kmsg.IncrementalAlterConfigsRequestResource{*asked}, r.ValidateOnly
				return one
			},
			code: func(resp kmsg.Response) (int16, *string, bool) {
				a, ok := resp.(*kmsg.IncrementalAlterConfigsResponse)
				if !ok || len(a.Resources) != 1 {
					return 0, nil, false
				}
				return a.Resources[0].ErrorCode, a.Resources[0].ErrorMessage, true
			},
		})
		d := kmsg.NewIncrementalAlterConfigsResponseResource()
		d.ResourceType, d.ResourceName, d.ErrorCode, d.ErrorMessage = asked.ResourceType, asked.ResourceName, f.Code, f.text()
		resp.Resources[i] = d
	})
	return resp
}

// AlterConfigs puts what is asked in the place of what is configured for groups. The fate of one does not affect another.
func (c *Coordinator) AlterConfigs(ctx context.Context, who Caller, r *kmsg.AlterConfigsRequest) *kmsg.AlterConfigsResponse {
	ctx, cancel := context.WithTimeout(ctx, alterTimeout)
	defer cancel()
	resp := r.ResponseKind().(*kmsg.AlterConfigsResponse)
	resp.Resources = make([]kmsg.AlterConfigsResponseResource, len(r.Resources))
	fanout(len(r.Resources), func(i int) {
		asked := &r.Resources[i]
		wanted := map[string]string{}
		for _, a := range asked.Configs {
			if a.Value != nil {
				wanted[a.Name] = *a.Value
			}
		}
		f := c.alterConfig(ctx, who, alteration{
			group: asked.ResourceName, validateOnly: r.ValidateOnly,
			alter: func(b *groupconfig.Broker, _ map[string]string) (map[string]string, *streams.Error) {
				return b.Replace(wanted)
			},
			request: func() kmsg.Request {
				one := kmsg.NewPtrAlterConfigsRequest()
				one.Resources, one.ValidateOnly = []kmsg.AlterConfigsRequestResource{*asked}, r.ValidateOnly
				return one
			},
			code: func(resp kmsg.Response) (int16, *string, bool) {
				a, ok := resp.(*kmsg.AlterConfigsResponse)
				if !ok || len(a.Resources) != 1 {
					return 0, nil, false
				}
				return a.Resources[0].ErrorCode, a.Resources[0].ErrorMessage, true
			},
		})
		d := kmsg.NewAlterConfigsResponseResource()
		d.ResourceType, d.ResourceName, d.ErrorCode, d.ErrorMessage = asked.ResourceType, asked.ResourceName, f.Code, f.text()
		resp.Resources[i] = d
	})
	return resp
}

// alterConfig has a change made by whoever owns the group's shard. While the shard moves it waits. A change that was sent on and
// whose answer was lost is sent again: it leads to the same configuration. ctx bounds the whole request.
func (c *Coordinator) alterConfig(ctx context.Context, who Caller, a alteration) failure {
	if a.group == "" {
		return failure{Code: codeInvalidRequest, Message: defaultGroupText}
	}
	if !utf8.ValidString(a.group) { // no group can have such an id, and Java's clients could not name what they list
		return failure{Code: codeInvalidRequest, Message: oddGroupText}
	}
	if fromReplica(who) { // which looks at its log again, and tries again
		f, _ := c.alterHere(ctx, a)
		return f
	}
	for {
		if ctx.Err() != nil { // others of the request took all the time there was
			return failure{Code: codeUnavailable, Message: "The change was not made: the request had too many, or their replicas did not take them in time."}
		}
		f, err := c.alterHere(ctx, a)
		if errors.Is(err, shard.ErrNotOwner) || errors.Is(err, shard.ErrUnavailable) {
			f, err = c.alterThere(ctx, a, f, err)
		}
		if !mayPass(f.Code) {
			return f
		}
		select {
		case <-time.After(alterPause):
		case <-ctx.Done():
			return c.report(failure{Code: codeUnavailable, Message: "The replica that has the group did not take the change in time; it may have been made all the same."},
				"AlterConfigs", a.group, err)
		}
	}
}

// mayPass are the codes that say nothing about the change, only about the moment.
func mayPass(code int16) bool {
	return code == codeLoading || code == codeNotCoordinator || code == codeUnavailable
}

func (c *Coordinator) alterHere(ctx context.Context, a alteration) (failure, error) {
	ctx, cancel := c.writing(ctx)
	defer cancel()
	err := c.shards.AlterConfig(ctx, a.group, a.validateOnly, a.alter)
	if err == nil {
		return failure{}, nil
	}
	return c.failed("AlterConfigs", a.group, err), err
}

// alterThere sends a change to the owner that the log names; refused is what this replica has said.
func (c *Coordinator) alterThere(ctx context.Context, a alteration, refused failure, err error) (failure, error) {
	o, ok := c.shards.Owner(c.shards.Partition(a.group))
	if !ok || o.NodeID == c.cfg.Node.ID || c.cfg.Peers == nil {
		return refused, err
	}
	owner, err := ParseNode(o.NodeID, o.Address)
	if err != nil {
		return c.failed("AlterConfigs", a.group, err), err
	}
	ctx, cancel := c.writing(ctx)
	defer cancel()
	resp, err := c.cfg.Peers.Request(ctx, owner, a.request())
	if err != nil {
		return c.report(failure{Code: codeUnavailable}, "AlterConfigs", a.group, err, "owner", owner.ID), err
	}
	code, text, ok := a.code(resp)
	if !ok {
		return failure{Code: codeUnavailable}, errors.New("the owner's answer is about something else")
	}
	f := failure{Code: code}
	if text != nil {
		f.Message = *text
	}
	return f, nil
}

// peerClientID is how replicas call themselves when they send each other what a client asked: it is not sent on another time.
const peerClientID = "streamkeeper-replica/"

func fromReplica(who Caller) bool { return strings.HasPrefix(who.ClientID, peerClientID) }
