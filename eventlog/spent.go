package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// The cluster can go on giving a producer id by which no claim can be made any more, and a partition that had no other would stay without an owner:
//
//   - a transaction coordinator gave one id, then another, lost that (an unclean election), and gives the first again. Every reader has seen it
//     replaced, and counts no claim by it;
//   - one that was replaced and did not notice gave a claimer another id, and that claimer fenced by hand (former.go) the id that the true coordinator
//     goes on giving. The partition's leader refuses all its epochs until producer.id.expiration.ms;
//   - one lost the last epochs of an id: the leader refuses all claims until it has come to them again.
//
// Such an id is spent. So a partition has more than one transactional id, and a claimer that meets a spent producer id takes the next one. The ownership
// record names the transactional id by its number; the next claimer begins with that. Readers don't care: they go by the producer.
//
// Who was refused because somebody else claimed meanwhile must not go on like that: it would take the partition from an owner in its right.

// errSpent: no claim can be made by a producer id that the cluster gives.
var errSpent = errors.New("the producer id is spent")

// numbersTried is how many transactional ids one claim tries.
const numbersTried = 8

// spent says of the producer of c that no claim can be made by it, as far as the claimer has read.
func spent(c Claim, prev *Owner) error {
	switch {
	case prev == nil:
	case slices.Contains(prev.Former, c.ProducerID):
		return fmt.Errorf("%w: a claim has replaced %d", errSpent, c.ProducerID)
	case prev.ProducerID == c.ProducerID && prev.ProducerEpoch == formerEpoch:
		return fmt.Errorf("%w: %d was fenced by hand", errSpent, c.ProducerID)
	}
	return nil
}

// whyRefused finds out why the leader refused the ownership record of c. The result wraps errSpent, or is refusal: somebody else claimed, or nobody knows.
func (k *Kafka) whyRefused(ctx context.Context, c Claim, prev *Owner, refusal error) error {
	if prev == nil {
		return refusal
	}
	ctx, cancel := context.WithTimeout(ctx, k.cfg.AppendDeadline)
	defer cancel()
	end, err := k.End(ctx, c.Partition)
	claimed, fenced := false, false // the last of them
	if err == nil {
		err = k.scan(ctx, c.Partition, prev.Offset+1, end, func(e Entry) error {
			switch {
			case !laterClaim(e, prev):
			case e.ProducerEpoch != formerEpoch:
				claimed, fenced = true, false
			case e.ProducerID == c.ProducerID:
				claimed, fenced = false, true
			}
			return nil
		})
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	before, again := k.refused[c.Partition]
	switch {
	case err != nil || claimed:
		delete(k.refused, c.Partition)
		return refusal
	case fenced:
		return fmt.Errorf("%w: %d was fenced by hand: %w", errSpent, c.ProducerID, refusal)
	case again && before.ProducerID == c.ProducerID && before.ProducerEpoch != c.ProducerEpoch:
		// The first time it could be a claim that its leader has and does not show yet.
		return fmt.Errorf("%w: epochs %d and %d of %d are refused, and the log has no other claim: %w", errSpent, before.ProducerEpoch, c.ProducerEpoch, c.ProducerID, refusal)
	}
	k.refused[c.Partition] = c
	return refusal
}

// laterClaim says that e is a claim after prev's, or repeats one.
func laterClaim(e Entry, prev *Owner) bool {
	key, err := DecodeKey(e.Key)
	if err != nil || key.Type != TypeOwnership || e.Control != ControlNone || e.Transactional || e.ProducerID < 0 {
		return false
	}
	v, err := DecodeValue(TypeOwnership, e.Value)
	o, ok := v.(*Ownership)
	return err == nil && ok && o.ProducerID == e.ProducerID && o.ProducerEpoch == e.ProducerEpoch && (o.Claim < 0 || o.Claim > prev.Generation)
}
