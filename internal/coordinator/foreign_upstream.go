package coordinator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// foreignBatchMax is how many groups are asked about at once. An application that starts asks for one; the limit is for a
	// cluster whose applications all start together, and keeps a request and its answer small.
	foreignBatchMax = 200
	// foreignBatchesMax is how many batches are under way: one that waits for a broker that is gone must not hold up the others.
	foreignBatchesMax = 4
)

// UpstreamGroups asks the cluster's coordinators with the describe calls of each kind of group. Questions that come while others are
// under way are asked together: three requests for one group cost as much as for two hundred.
type UpstreamGroups struct {
	client kmsg.Requestor

	mu      sync.Mutex
	waiting map[string][]chan foreignFound
	running int
}

// foreignFound is what the cluster knows of a group; kind "": it has none.
type foreignFound struct {
	kind    string
	members bool
	err     error
}

// NewUpstreamGroups returns one that asks through client, which finds coordinators by itself; *kgo.Client does.
func NewUpstreamGroups(client kmsg.Requestor) *UpstreamGroups {
	return &UpstreamGroups{client: client, waiting: map[string][]chan foreignFound{}}
}

// Find implements ForeignGroups.
func (u *UpstreamGroups) Find(ctx context.Context, group string) (kind string, members bool, err error) {
	answer := make(chan foreignFound, 1)
	u.mu.Lock()
	u.waiting[group] = append(u.waiting[group], answer)
	if u.running < foreignBatchesMax {
		u.running++
		go u.run()
	}
	u.mu.Unlock()
	select {
	case f := <-answer:
		return f.kind, f.members, f.err
	case <-ctx.Done():
		return "", false, ctx.Err()
	}
}

// run asks for what waits until nothing does. Each batch has a time of its own: those who wait in it came at different moments.
func (u *UpstreamGroups) run() {
	for {
		u.mu.Lock()
		batch := map[string][]chan foreignFound{}
		var groups []string
		for group, answers := range u.waiting {
			if len(groups) == foreignBatchMax {
				break
			}
			batch[group] = answers
			groups = append(groups, group)
			delete(u.waiting, group)
		}
		if len(groups) == 0 {
			u.running--
			u.mu.Unlock()
			return
		}
		u.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), foreignTimeout)
		found := u.ask(ctx, groups)
		cancel()
		for group, answers := range batch {
			for _, answer := range answers {
				answer <- found[group]
			}
		}
	}
}

// ask asks about all groups together, and where that fails about each alone: one coordinator that does not answer says nothing about
// groups of others.
func (u *UpstreamGroups) ask(ctx context.Context, groups []string) map[string]foreignFound {
	found, err := u.describe(ctx, groups)
	if err == nil {
		return found
	}
	found = map[string]foreignFound{}
	if len(groups) == 1 {
		found[groups[0]] = foreignFound{err: err}
		return found
	}
	var mu sync.Mutex
	fanout(len(groups), func(i int) {
		f, err := u.describe(ctx, groups[i:i+1])
		mu.Lock()
		defer mu.Unlock()
		if found[groups[i]] = f[groups[i]]; err != nil {
			found[groups[i]] = foreignFound{err: err}
		}
	})
	return found
}

// describe asks with the three describe calls side by side. A kind that the cluster does not support is a kind it has no groups of. The
// newer kinds count first: what DescribeGroups answers about them differs between versions and implementations.
func (u *UpstreamGroups) describe(ctx context.Context, groups []string) (map[string]foreignFound, error) {
	kinds := []func(context.Context, []string) (map[string]foreignFound, error){u.consumerGroups, u.shareGroups, u.classicGroups}
	answers := make([]map[string]foreignFound, len(kinds))
	errs := make([]error, len(kinds))
	var wg sync.WaitGroup
	for i, ask := range kinds {
		wg.Go(func() { answers[i], errs[i] = ask(ctx, groups) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	found := map[string]foreignFound{}
	for _, group := range groups {
		for _, a := range answers {
			if f, ok := a[group]; ok {
				found[group] = f
				break
			}
		}
	}
	return found, nil
}

func (u *UpstreamGroups) consumerGroups(ctx context.Context, groups []string) (map[string]foreignFound, error) {
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = groups
	resp, err := req.RequestWith(ctx, u.client)
	if err != nil {
		return nil, needed("ConsumerGroupDescribe", err)
	}
	found := map[string]foreignFound{}
	for _, g := range resp.Groups {
		note(found, "ConsumerGroupDescribe", g.Group, "consumer", g.ErrorCode, len(g.Members) > 0)
	}
	return found, nil
}

func (u *UpstreamGroups) shareGroups(ctx context.Context, groups []string) (map[string]foreignFound, error) {
	req := kmsg.NewPtrShareGroupDescribeRequest()
	req.GroupIDs = groups
	resp, err := req.RequestWith(ctx, u.client)
	if err != nil {
		return nil, needed("ShareGroupDescribe", err)
	}
	found := map[string]foreignFound{}
	for _, g := range resp.Groups {
		note(found, "ShareGroupDescribe", g.GroupID, "share", g.ErrorCode, len(g.Members) > 0)
	}
	return found, nil
}

// kindStreams is a streams group of the cluster's own coordinator. (What Kafka says is no classic group, and is neither of the consumer nor of the
// share kind, is one; StreamsGroupDescribe would have to be led to the coordinator by hand, for the same answer.)
const kindStreams = "streams"

func (u *UpstreamGroups) classicGroups(ctx context.Context, groups []string) (map[string]foreignFound, error) {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = groups
	resp, err := req.RequestWith(ctx, u.client)
	if err != nil {
		return nil, fmt.Errorf("DescribeGroups: %w", err)
	}
	found := map[string]foreignFound{}
	for _, g := range resp.Groups {
		if g.ErrorCode == 0 && g.State == "Dead" {
			continue
		}
		if g.ErrorMessage != nil && *g.ErrorMessage == "Group "+g.Group+" is not a classic group." {
			found[g.Group] = foreignFound{kind: kindStreams}
			continue
		}
		kind := g.ProtocolType
		if kind == "" || kind == "consumer" {
			kind = "classic"
		}
		note(found, "DescribeGroups", g.Group, kind, g.ErrorCode, len(g.Members) > 0)
	}
	return found, nil
}

// needed is err, but for a request that the cluster does not know: then there is nothing to find.
func needed(api string, err error) error {
	if unsupported(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", api, err)
}

// note keeps what one answer says of a group, unless it says that there is none.
func note(found map[string]foreignFound, api, group, kind string, code int16, members bool) {
	switch err := kerr.ErrorForCode(code); {
	case err == nil:
		found[group] = foreignFound{kind: kind, members: members}
	case errors.Is(err, kerr.GroupIDNotFound), errors.Is(err, kerr.UnsupportedVersion):
	default:
		found[group] = foreignFound{err: fmt.Errorf("%s: %w", api, err)}
	}
}

// unsupported says that a broker does not know the request. The client library has no exported error for it; a test
// against an old cluster guards the texts.
func unsupported(err error) bool {
	return errors.Is(err, kerr.UnsupportedVersion) ||
		strings.Contains(err.Error(), "broker is too old") || strings.Contains(err.Error(), "request key is unknown")
}
