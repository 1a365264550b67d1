package coordinator

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/shard/offsets"
)

const (
	// goneBrokersMax is how many brokers are asked whether a topic is gone: one that is behind does not know topics that were made a moment
	// ago, and it is not likely that so many are. More would make a deletion expensive on large clusters.
	goneBrokersMax = 8
	// gonePause is the time between the two rounds of questions: a broker that has just started learns the cluster's topics within it.
	gonePause = 3 * time.Second
)

// Gone tells which of the topics certainly were deleted, for something that can't be taken back. It asks any broker, then, about what that one does not
// know, all brokers (goneBrokersMax at most), and after gonePause once more; a topic is gone if none of the answers knows it. A reference without an id is gone if there is no topic
// of its name; one with an id also if that name has another one. What can't be told, because a broker does not answer, does not know the witness, or may not show the topic,
// is an error, or not among the gone. For a name without any topic the reference without an id is returned as well.
func (t *Topics) Gone(ctx context.Context, refs []offsets.TopicRef) (map[offsets.TopicRef]bool, error) {
	g := goneQuestion{t: t, suspects: refs, seen: map[string]bool{}}
	if err := g.ask(ctx, t.cfg.Client); err != nil {
		return nil, err
	}
	for round := range 2 {
		if len(g.suspects) == 0 {
			return nil, nil
		}
		if round > 0 {
			select {
			case <-time.After(gonePause):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		for _, broker := range g.brokers() {
			if err := g.ask(ctx, broker); err != nil {
				return nil, err
			}
		}
	}
	gone := make(map[offsets.TopicRef]bool, len(g.suspects))
	for _, ref := range g.suspects {
		gone[ref] = true
		if !g.seen[ref.Name] {
			gone[offsets.TopicRef{Name: ref.Name}] = true
		}
	}
	return gone, nil
}

// mostPartitions tells how many partitions the topics have, by the broker that knows the most of each, of all (goneBrokersMax at most): one that
// is behind does not know the latest. A broker that does not answer, or does not know the witness or one of the topics, is an error.
func (t *Topics) mostPartitions(ctx context.Context, names []string) (map[string]int, error) {
	counts := make(map[string]int, len(names))
	for _, broker := range t.several(goneBrokersMax) {
		for chunk := range slices.Chunk(names, topicNamesPerRequest) {
			resp, err := t.askWitnessed(ctx, broker, chunk)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", ErrTopicsUnknown, err)
			}
			answered := map[string]int{}
			for i := range resp.Topics {
				if rt := &resp.Topics[i]; rt.Topic != nil {
					answered[*rt.Topic] = len(rt.Partitions) // none with an error
				}
			}
			for _, name := range chunk {
				if answered[name] == 0 {
					return nil, fmt.Errorf("%w: a broker can't tell the partitions of %s", ErrTopicsUnknown, name)
				}
				counts[name] = max(counts[name], answered[name])
			}
		}
	}
	return counts, nil
}

// goneQuestion is one question for topics that may be gone.
type goneQuestion struct {
	t        *Topics
	suspects []offsets.TopicRef // that no answer knew yet
	seen     map[string]bool    // names that some answer has a topic of
	nodes    []int32            // of the last answer
}

// brokers are those to ask, in no particular order.
func (g *goneQuestion) brokers() []kmsg.Requestor {
	if g.t.cfg.Broker == nil || len(g.nodes) == 0 {
		return []kmsg.Requestor{g.t.cfg.Client}
	}
	nodes := slices.Clone(g.nodes)
	rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	var out []kmsg.Requestor
	for _, n := range nodes[:min(len(nodes), goneBrokersMax)] {
		out = append(out, g.t.cfg.Broker(n))
	}
	return out
}

// ask asks about the suspects and keeps those that the answer does not know either.
func (g *goneQuestion) ask(ctx context.Context, who kmsg.Requestor) error {
	var left []offsets.TopicRef
	for chunk := range slices.Chunk(g.suspects, topicNamesPerRequest) {
		resp, err := g.request(ctx, who, chunk)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrTopicsUnknown, err)
		}
		left = append(left, g.missing(resp, chunk)...)
	}
	g.suspects = left
	return nil
}

func (g *goneQuestion) request(ctx context.Context, who kmsg.Requestor, refs []offsets.TopicRef) (*kmsg.MetadataResponse, error) {
	names := make([]string, 0, len(refs))
	for _, ref := range refs {
		names = append(names, ref.Name)
	}
	resp, err := g.t.askWitnessed(ctx, who, names)
	if err != nil {
		return nil, err
	}
	g.nodes = g.nodes[:0]
	for _, b := range resp.Brokers {
		g.nodes = append(g.nodes, b.NodeID)
	}
	return resp, nil
}

// askWitnessed asks one broker about topics. The answer of one that does not know the witness is an error.
func (t *Topics) askWitnessed(ctx context.Context, who kmsg.Requestor, topics []string) (*kmsg.MetadataResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, topicFetchTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	names := slices.Clone(topics)
	if t.cfg.Witness != "" {
		names = append(names, t.cfg.Witness)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, who)
	if err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if w := t.cfg.Witness; w != "" {
		i := slices.IndexFunc(resp.Topics, func(t kmsg.MetadataResponseTopic) bool { return t.Topic != nil && *t.Topic == w })
		if i < 0 || resp.Topics[i].ErrorCode == kerr.UnknownTopicOrPartition.Code {
			return nil, fmt.Errorf("a broker does not know %s, so it does not know the cluster yet", w)
		}
	}
	return resp, nil
}

// missing are the topics that the answer says are not there. An answer without one of them, or with another error than that there is none, is no such word.
func (g *goneQuestion) missing(resp *kmsg.MetadataResponse, refs []offsets.TopicRef) (out []offsets.TopicRef) {
	type known struct {
		absent bool
		id     [16]byte
	}
	answers := make(map[string]known, len(resp.Topics))
	for i := range resp.Topics {
		rt := &resp.Topics[i]
		if rt.Topic == nil {
			continue
		}
		k := known{absent: rt.ErrorCode == kerr.UnknownTopicOrPartition.Code}
		if !k.absent {
			k.id = rt.TopicID
			g.seen[*rt.Topic] = true
		}
		answers[*rt.Topic] = k
	}
	for _, ref := range refs {
		k, answered := answers[ref.Name]
		another := ref.ID != [16]byte{} && k.id != [16]byte{} && k.id != ref.ID
		if answered && (k.absent || another) {
			out = append(out, ref)
		}
	}
	return out
}
