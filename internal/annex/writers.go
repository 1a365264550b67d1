package annex

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/plugin"
	"streamkeeper/shard"
)

const (
	// adoptTimeout bounds the writing of an ownership record, which callers leave earlier: as long as an append.
	adoptTimeout = 30 * time.Second
	// renewLook is how often it is looked whether a claim was renewed: a round trip to the cluster takes about as long.
	renewLook = 10 * time.Millisecond
	// renewAgain is when it is asked for once more: a renewal that fails takes as long as a request to a coordinator that moves.
	renewAgain = 5 * time.Second
)

// errNotServed: this replica does not serve the partition.
var errNotServed = errors.New("the partition is not served here")

// part is the writer of one partition, if this replica has one.
type part struct {
	space *Space
	p     int32

	mu       sync.Mutex
	writer   eventlog.Writer // nil: none
	held     shard.Holding   // whose claim the writer has adopted
	spent    *eventlog.Claim // the last claim that was adopted, or tried to be
	adopting *adoption       // under way
}

type adoption struct {
	done chan struct{}
	err  error // read after done
}

// write calls do with the partition's writer, adopting the claim in force first if need be; do must tell outcome what became of its
// append. It is not called once ctx has ended, nor concurrently with another do.
func (pt *part) write(ctx context.Context, annex eventlog.Annex, do func(w eventlog.Writer, outcome func(error))) error {
	var renewed time.Time
	for {
		held, ok := pt.space.cfg.Holding(pt.p)
		if ctx.Err() != nil { // in this order, see doc.go
			return context.Cause(ctx)
		}
		if !ok {
			return plugin.Transient(textNotOwner, errNotServed)
		}
		pt.mu.Lock()
		switch {
		case pt.usable(held):
			w := pt.writer
			do(w, func(err error) { pt.outcome(w, err) })
			pt.mu.Unlock()
			return nil
		case pt.adopting != nil:
			a := pt.adopting
			pt.mu.Unlock()
			select {
			case <-a.done:
				if a.err != nil {
					return clientError(a.err)
				}
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		case pt.spent != nil && sameEpoch(*pt.spent, held.Claim):
			pt.mu.Unlock()
			if time.Since(renewed) >= renewAgain { // it may fail as well, and is not tried again by itself for a part of RenewInterval
				held.Renew()
				renewed = time.Now()
			}
			if err := pause(ctx, renewLook); err != nil {
				return err
			}
		default:
			pt.begin(held, annex)
			pt.mu.Unlock()
		}
	}
}

func sameEpoch(a, b eventlog.Claim) bool {
	return a.ProducerID == b.ProducerID && a.ProducerEpoch == b.ProducerEpoch
}

// usable says that there is a writer to go on with. One under an epoch that has been renewed meanwhile is as good as long as it has
// something to write: what is queued keeps its order. pt.mu is held.
func (pt *part) usable(held shard.Holding) bool {
	return pt.writer != nil && pt.held.Tenure == held.Tenure && (sameEpoch(pt.held.Claim, held.Claim) || pt.writer.Backlog() > 0)
}

// begin adopts a claim, on a goroutine of its own: whoever asked for it may leave. pt.mu is held.
func (pt *part) begin(held shard.Holding, annex eventlog.Annex) {
	if pt.writer != nil {
		pt.writer.Close()
		pt.writer = nil
	}
	a := &adoption{done: make(chan struct{})}
	pt.adopting, pt.spent = a, &held.Claim
	go func() {
		ctx, cancel := context.WithTimeout(held.Tenure, adoptTimeout)
		defer cancel()
		w, err := annex.Adopt(ctx, held.Owner, held.Claim)
		if o := pt.space.current(); err == nil && (o == nil || o.annex != annex) {
			w.Close()
			err = eventlog.ErrTopicGone
		}
		pt.mu.Lock()
		defer pt.mu.Unlock()
		if pt.adopting = nil; err == nil {
			pt.writer, pt.held = w, held
			context.AfterFunc(held.Tenure, func() { pt.ended(w) })
		} else if held.Tenure.Err() == nil {
			pt.space.log.Warn("the claim of a partition can't be taken over for topology descriptions", "partition", pt.p, "err", err)
			a.err = fmt.Errorf("adoption: %w", err)
		} else {
			a.err = fmt.Errorf("adoption: %w", errNotServed)
		}
		close(a.done)
	}()
}

// outcome takes what became of an append. A writer that reports an error other than of this one append is dead.
func (pt *part) outcome(w eventlog.Writer, err error) {
	if err == nil || errors.Is(err, eventlog.ErrTooLarge) || errors.Is(err, eventlog.ErrEmptyAppend) {
		return
	}
	pt.ended(w)
}

// ended lets go of a writer, if it is the one in use.
func (pt *part) ended(w eventlog.Writer) {
	w.Close()
	pt.mu.Lock()
	defer pt.mu.Unlock()
	if pt.writer == w {
		pt.writer = nil
	}
}

// drop lets go of whatever writer there is: the topic is another one now. The claim stays spent, since it may be the same all the same.
func (pt *part) drop() {
	pt.mu.Lock()
	defer pt.mu.Unlock()
	if pt.writer != nil {
		pt.writer.Close()
		pt.writer = nil
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
