package coordinator

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// topicConfirmBrokers is how many brokers are asked at a time whether a topic is missing: one more than have to agree, so that one of them
	// may hang.
	topicConfirmBrokers = topicMissesMax + 1
	// topicConfirmTimeout bounds these questions, during which no others are asked. Brokers that answer do so in milliseconds.
	topicConfirmTimeout = time.Second
)

// EnsureStored is Ensure, with topics that a group was seen to use, here or by the former owner of its shard. Such a topic counts as missing
// only if several brokers say so (topicMissesMax, or all that the cluster has), each of which knows the witness; until then the answer is
// ErrTopicsUnknown.
func (t *Topics) EnsureStored(ctx context.Context, names, stored []string) error {
	round := t.want(time.Now(), names, stored, nil)
	if round == nil {
		return nil
	}
	return t.await(ctx, round)
}

// doubtful are those of the topics that are missing on one word at most.
func (t *Topics) doubtful(names []string) (out []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		if e := t.entries[name]; e == nil || !e.exists && !e.sure {
			out = append(out, name)
		}
	}
	return out
}

// confirm makes sure of those of the topics that are missing.
func (t *Topics) confirm(ctx context.Context, names []string) error {
	for chunk := range slices.Chunk(t.doubtful(names), topicNamesPerRequest) {
		t.confirmSome(ctx, chunk)
		if left := t.doubtful(chunk); len(left) > 0 {
			const shown = 20
			return fmt.Errorf("%w: whether %d topics that groups use are missing: %v", ErrTopicsUnknown, len(left), left[:min(shown, len(left))])
		}
	}
	return nil
}

// confirmSome asks several brokers at once, and takes in what they say until all is decided.
func (t *Topics) confirmSome(ctx context.Context, names []string) {
	ctx, cancel := context.WithTimeout(ctx, topicConfirmTimeout)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	brokers := t.several(topicConfirmBrokers)
	answers := make(chan *kmsg.MetadataResponse, len(brokers))
	for _, broker := range brokers {
		asking.Go(func() {
			resp, err := t.askWitnessed(ctx, broker, names)
			if err != nil && ctx.Err() == nil {
				t.cfg.Logger.Debug("a broker can't tell whether topics are missing", "err", err)
			}
			answers <- resp // nil with an error
		})
	}
	undecided := make(map[string]int, len(names)) // how many say that it is missing
	for _, name := range names {
		undecided[name] = 0
	}
	for range brokers {
		resp := <-answers
		if resp == nil {
			continue
		}
		there := *resp
		there.Topics = nil
		var missing []string
		for _, rt := range resp.Topics {
			if rt.Topic == nil {
				continue
			}
			name := *rt.Topic
			n, open := undecided[name]
			if !open {
				continue // the witness, or decided
			}
			switch exists, absent := told(&rt); {
			case exists:
				there.Topics = append(there.Topics, rt)
				delete(undecided, name)
			case absent && n+1 >= min(topicMissesMax, len(brokers)):
				missing = append(missing, name)
				delete(undecided, name)
			case absent:
				undecided[name] = n + 1
			}
		}
		t.merge(time.Now(), &there, names, nil)
		t.missing(time.Now(), missing)
		if len(undecided) == 0 {
			return
		}
	}
}

// missing notes that topics certainly are missing.
func (t *Topics) missing(now time.Time, names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		e := t.entries[name]
		if e == nil {
			e = &topicEntry{since: now, used: now}
			t.entries[name] = e
		}
		e.checked, e.sure = now, !e.exists
	}
}

// several are brokers, limit at most, in no particular order; where they can't be told apart, any.
func (t *Topics) several(limit int) (out []kmsg.Requestor) {
	t.mu.Lock()
	nodes := slices.Clone(t.nodes)
	t.mu.Unlock()
	if t.cfg.Broker == nil || len(nodes) == 0 {
		return []kmsg.Requestor{t.cfg.Client}
	}
	rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	for _, n := range nodes[:min(len(nodes), limit)] {
		out = append(out, t.cfg.Broker(n))
	}
	return out
}
