package eventlog

import (
	"context"
	"fmt"
	"time"
)

// Adopt implements Annex. It waits while appends are held.
func (f *Fake) Adopt(ctx context.Context, o Ownership, c Claim) (Writer, error) {
	for {
		f.mu.Lock()
		w, wait, err := f.adopt(o, c)
		changed := f.changed
		f.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if !wait {
			return w, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// adopt writes the ownership record, or says that it has to wait. f.mu is held.
func (f *Fake) adopt(o Ownership, c Claim) (w *fakeWriter, wait bool, err error) {
	if f.closed {
		return nil, false, ErrClosed
	}
	if f.gone != nil {
		return nil, false, f.gone
	}
	part, err := f.part(c.Partition)
	if err != nil {
		return nil, false, err
	}
	if part.faults.holdAppends {
		return nil, true, nil
	}
	if last := part.adopted; last.ProducerID == c.ProducerID && last.ProducerEpoch >= c.ProducerEpoch && part.adoptions > 0 {
		return nil, false, fmt.Errorf("%w (producer id %d, epoch %d)", ErrClaimUsed, c.ProducerID, c.ProducerEpoch)
	}
	if part.seen[c.ProducerID] > c.ProducerEpoch {
		return nil, false, ErrFenced
	}
	part.adopted = c
	part.adoptions++
	o.Format, o.ProducerID, o.ProducerEpoch, o.Claim, o.LogID = OwnershipFormat, c.ProducerID, c.ProducerEpoch, -1, ""
	w = &fakeWriter{f: f, part: part, owner: o, current: adoptedClaim(c), adopted: true}
	switch fault := part.faults.next(); fault.kind {
	case fakeFail:
		return nil, false, fault.err
	case fakeDrop:
		return nil, false, ErrOutcomeUnknown
	case fakeLoseAck:
		part.write(f, w.entries(operation{time.Now().UnixMilli(), []Raw{ownershipRaw(o)}}))
		return nil, false, ErrOutcomeUnknown
	}
	w.current.Generation = part.write(f, w.entries(operation{time.Now().UnixMilli(), []Raw{ownershipRaw(o)}}))
	part.writers = append(part.writers, w)
	return w, false, nil
}
