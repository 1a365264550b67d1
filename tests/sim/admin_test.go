package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/shard"
	"streamkeeper/shard/groupconfig"
	"streamkeeper/shard/streams"
)

// adminID is the client id of Java's admin client, by which it is shown the replicas that own shards alone.
const adminID = "adminclient-1"

// admin is an operator: lists, describes, and now and then deletes a group.
func (w *world) admin() {
	rng := w.rng("admin")
	seek := w.newSeeker("admin", adminID, never)
	defer seek.close()
	for w.sleep(w.ctx, time.Duration(rng.Int64N(int64(40*time.Second)))) {
		group := groupName(rng.IntN(w.groups))
		verb := rng.IntN(10)
		ctx, cancel := context.WithTimeout(w.ctx, requestTimeout)
		var err error
		switch {
		case verb < 3 && !w.isCalm():
			before := w.view(group)
			theirs := w.checker.removedAtCluster(group)
			err = seek.deleteGroup(ctx, group)
			if err == nil && w.view(group).removals == before.removals && w.checker.removedAtCluster(group) == theirs {
				w.violate("%s: its deletion was acknowledged, and the log does not have it", group)
			}
			w.refusedWrongly("the deletion", group, before, err)
			w.note("%s: deletion: %v", group, err)
		default:
			before := w.view(group)
			_, err = seek.describe(ctx, group)
			w.refusedWrongly("a description", group, before, err)
		}
		cancel()
		var refusal *streams.Error
		switch {
		case err == nil, errors.Is(err, errLost), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		case errors.Is(err, shard.ErrNotOwner), errors.Is(err, shard.ErrLoading), errors.Is(err, shard.ErrUnavailable):
		case errors.As(err, &refusal) && (refusal.Code == codeGroupNotFound || refusal.Code == codeNonEmpty):
		default:
			w.violate("%s: admin request %d: %v", group, verb, err)
		}
	}
}

// atCoordinator asks the coordinator of a group, once.
func (s *seeker) atCoordinator(ctx context.Context, group string, req kmsg.Request) (kmsg.Response, error) {
	n, _, err := s.find(ctx, group)
	if err != nil {
		return nil, err
	}
	// Java's admin client has one connection for each node, whatever it asks there.
	resp, _, err := s.ask(ctx, n.id, n.address, req)
	if err != nil {
		return nil, errLost
	}
	return resp, nil
}

// deleteGroup deletes a group and its description.
func (s *seeker) deleteGroup(ctx context.Context, group string) error {
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Version, req.Groups = 3, []string{group}
	resp, err := s.atCoordinator(ctx, group, req)
	if err != nil {
		return err
	}
	g := resp.(*kmsg.DeleteGroupsResponse).Groups[0]
	const deletionFailed = 134 // the catalogue is out of order
	if g.ErrorCode == deletionFailed {
		return shard.ErrLoading
	}
	return problem(g.ErrorCode, g.ErrorMessage)
}

func (s *seeker) describe(ctx context.Context, group string) (kmsg.StreamsGroupDescribeResponseGroup, error) {
	req := kmsg.NewPtrStreamsGroupDescribeRequest()
	req.Version, req.Groups = 1, []string{group}
	resp, err := s.atCoordinator(ctx, group, req)
	if err != nil {
		return kmsg.StreamsGroupDescribeResponseGroup{}, err
	}
	g := resp.(*kmsg.StreamsGroupDescribeResponse).Groups[0]
	return g, problem(g.ErrorCode, g.ErrorMessage)
}

// configure changes the configuration of a group, at whatever node. What is refused or gets no answer is not repeated.
func (w *world) configure(group string, changes []groupconfig.Change, rng *rand.Rand) {
	if len(changes) == 0 {
		return
	}
	seek := w.newSeeker("configuration", adminID, never)
	defer seek.close()
	ctx, cancel := context.WithTimeout(w.ctx, requestTimeout)
	defer cancel()
	loss := w.loss(group)
	err := seek.configure(ctx, group, changes)
	w.note("%s: configured with %v: %v", group, changes, err)
	if err == nil {
		w.checker.ackedConfig(group, changes, loss)
	}
}

func (s *seeker) configure(ctx context.Context, group string, changes []groupconfig.Change) error {
	if err := s.refresh(ctx); err != nil {
		return err
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = 1
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	for _, c := range changes {
		x := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		x.Name, x.Op = c.Name, kmsg.IncrementalAlterConfigOp(c.Op)
		if c.Op == groupconfig.Set {
			x.Value = &c.Value
		}
		r.Configs = append(r.Configs, x)
	}
	req.Resources = append(req.Resources, r)
	resp, _, err := s.askAny(ctx, req)
	if err != nil {
		return err
	}
	a := resp.(*kmsg.IncrementalAlterConfigsResponse).Resources[0]
	return problem(a.ErrorCode, a.ErrorMessage)
}
