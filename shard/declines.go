package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"streamkeeper/eventlog"
	"streamkeeper/projection"
)

// A replica that can't serve a shard for a reason of its own declines it: the ownership group is told, and gives it to another replica that can. What all
// decline stays where it is, and is tried there again and again. A reason that may pass is believed for a while, longer each time it comes back, and
// then the shard may come again: so a shard that two replicas can't serve does not go to and fro. That the log is still read can be seen to end.

const (
	// declineLook is the time between two looks at what has changed; changes within it make one rebalance.
	declineLook = 250 * time.Millisecond
	// declinePatience is how long a store may be out of order before its shards are declined: longer than a disk hesitates, and well below what clients wait for
	// one answer (30 s), as some come only when the projection goes on (read barriers, D3).
	declinePatience = 8 * time.Second
	// deniedPatience is how long the cluster may deny this replica's identity a partition: longer than one broker that answers so for a moment, as one does whose
	// rights are being replaced, or whose authorizer has not read them yet. It is asked again every second (eventlog).
	deniedPatience = 2 * time.Second
	// unreachedPatience is how long a broker may be silent here, and lead, or coordinate claims, all the same: longer than a cluster takes to give up one that is silent everywhere (9 s,
	// broker.session.timeout.ms), so that nothing moves because of that.
	unreachedPatience = 15 * time.Second
	// declineHoldMin and declineHoldMax bound how long a reason that may pass is believed; it doubles each time the reason comes back. Each attempt
	// moves shards to this replica and, where it fails, away again.
	declineHoldMin = time.Minute
	declineHoldMax = time.Hour
	// declineAgain is when the group is told again what it should have heard by then; a rebalance takes that long at most.
	declineAgain = 30 * time.Second
	// clockPatience is how long a verdict on our clock waits for claims whose outcome is open.
	clockPatience = 30 * time.Second
	// clockAsk is the time between two questions whether the leaders of the shards that are served take our time.
	clockAsk = claimRetryMax
)

// Reasons to decline a shard, in a word, as members tell each other.
const (
	DeclinedRecord  = "record"  // a record in it is of a newer version, or can't be read
	DeclinedStorage = "storage" // the data directory takes nothing
	DeclinedClock   = "clock"   // all leaders refuse this machine's time
	DeclinedRights  = "rights"  // the cluster refuses this replica's identity to read it, to write it, or to claim it
	DeclinedBroker  = "broker"  // the broker that leads it, or by which it is claimed, does not answer this replica, and is that all the same
	DeclinedReading = "reading" // it is still read, or read again: whoever has read it to its end serves meanwhile
)

// DeclineReasons are all of them.
var DeclineReasons = []string{DeclinedRecord, DeclinedStorage, DeclinedClock, DeclinedRights, DeclinedBroker, DeclinedReading}

// Decline says why this replica does not serve a partition.
type Decline struct {
	Partition int32
	Why       string // Declined…
	Err       error
	Until     time.Time // when it is tried again at the earliest
}

// declines are what a host can't serve.
type declines struct {
	mu    sync.Mutex
	by    map[int32]*declined
	ill   map[illness]time.Time // since when
	fresh bool                  // something changed since the membership was told
	// urged is what the group was last told to make haste with, at urgedAt: until it has heard of it, it is not told again.
	urged   map[int32]string
	urgedAt time.Time

	refused clockRefusals
	reading reading
}

// illness is what is wrong with a partition, in a word of DeclineReasons. Some has to last before the partition is declined.
type illness struct {
	partition int32
	why       string
}

// clockRefusals are the assigned partitions whose leaders refused our time, and took nothing since. It is our clock that is wrong where all did; where
// one takes it the others' clocks are, and no other replica would fare better.
type clockRefusals struct {
	by    map[int32]error
	since time.Time // when the first one was refused
	open  bool      // one was refused that the leaders of the served shards were not asked about yet
	asked time.Time
}

// declined is what is known of one partition. It is kept when the reason has passed, for the next time.
type declined struct {
	Decline
	now    bool
	hold   time.Duration
	lifted time.Time
}

// declineReason is why an error of a claim, or of an append, is this replica's own fault; "" where it is not.
func declineReason(err error) string {
	switch {
	case errors.Is(err, eventlog.ErrRefused):
		return DeclinedRecord
	case errors.Is(err, kerr.InvalidTimestamp):
		return DeclinedClock
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.TransactionalIDAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return DeclinedRights
	}
	return ""
}

// add declines a partition; nothing happens where it is declined. That it is read is believed for as long as it is so, and gives way to other reasons.
func (d *declines) add(p int32, why string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x, now := d.by[p], time.Now()
	switch {
	case x != nil && x.now && (x.Why != DeclinedReading || why == DeclinedReading):
		return
	case x == nil:
		x = &declined{hold: declineHoldMin}
	case why == DeclinedReading:
	case now.Sub(x.lifted) > declineHoldMax: // long ago
		x.hold = declineHoldMin
	default:
		x.hold = min(2*x.hold, declineHoldMax)
	}
	x.Decline = Decline{Partition: p, Why: why, Err: err, Until: now.Add(x.hold)}
	if why == DeclinedReading {
		x.Until = now
	}
	x.now = true
	if d.by == nil {
		d.by = map[int32]*declined{}
	}
	d.by[p] = x
	d.fresh = true
}

// lift ends what lasts no longer. lasts says that the reason is still there.
func (d *declines) lift(now time.Time, lasts func(*Decline) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	read := false
	for _, x := range d.by {
		if x.now && !now.Before(x.Until) && !lasts(&x.Decline) && !(x.Why == DeclinedReading && d.reads(x.Partition, now)) {
			x.now = false
			if x.Why == DeclinedReading {
				read = true
			} else { // which is believed no longer when it comes back
				x.lifted = now
			}
			d.fresh = true
		}
	}
	if read {
		d.reading.waits = time.Time{}
	}
}

// passed notes that a claim of the partition succeeded: what the cluster refused it takes now. It ends with the next look.
func (d *declines) passed(p int32, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.refused.by, p)
	x := d.by[p]
	if x == nil || !x.now {
		return
	}
	for _, y := range d.by {
		if y.now && y.Why == x.Why && (x.Why == DeclinedClock || x.Why == DeclinedRights && (y == x || ofTopic(x.Err) && ofTopic(y.Err))) {
			y.Until = now
		}
	}
}

// ofTopic says that what the cluster refuses is a right on the log's topic, which a replica has for all partitions or for none.
func ofTopic(err error) bool { return errors.Is(err, kerr.TopicAuthorizationFailed) }

// has says that a partition is declined.
func (d *declines) has(p int32) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.by[p]
	return x != nil && x.now
}

// list are those of this moment, ascending.
func (d *declines) list() []Decline {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []Decline
	for _, p := range slices.Sorted(maps.Keys(d.by)) {
		if d.by[p].now {
			out = append(out, d.by[p].Decline)
		}
	}
	return out
}

// Declines are the partitions that this replica can't serve for a reason of its own, ascending. Others serve them, if there are others that can.
func (h *Host) Declines() []Decline { return h.declines.list() }

// decline notes that a claim, or an append, of a partition failed. On a clock lookAtClock decides.
func (h *Host) decline(p int32, err error) {
	switch why := declineReason(err); why {
	case "":
	case DeclinedClock:
		h.declines.refuse(p, err, time.Now())
	case DeclinedRights:
		if errors.Is(err, kerr.TransactionalIDAuthorizationFailed) { // in words that shards with the same trouble have in common
			err = fmt.Errorf("the process needs WRITE and DESCRIBE on the transactional ids that begin with %s-: %w", h.cfg.Log.Identity().Topic, kerr.TransactionalIDAuthorizationFailed)
		}
		if !ofTopic(err) {
			h.declines.add(p, why, err)
			return
		}
		for q := range h.Partitions() { // or they would come here and go again one after the other
			h.declines.add(q, why, err)
		}
	default:
		h.declines.add(p, why, err)
	}
}

// refuse notes that the leader of a partition refused our time.
func (d *declines) refuse(p int32, err error, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.refused.by) == 0 {
		d.refused.by, d.refused.since = map[int32]error{}, now
	}
	d.refused.by[p] = err
	d.refused.open = true
}

// lookAtClock declines all partitions where our clock is wrong: the leaders of all that are assigned here refuse it. Those of shards that are served took it
// once, and are asked again.
func (h *Host) lookAtClock(now time.Time) {
	d := &h.declines
	served := h.OwnedCount()
	wanted := 0
	for _, s := range h.shards {
		if s.wantedNow.Load() {
			wanted++
		}
	}
	d.mu.Lock()
	r := &d.refused
	maps.DeleteFunc(r.by, func(p int32, _ error) bool { return !h.shards[p].wantedNow.Load() })
	var because error
	for _, err := range r.by {
		because = err
		break
	}
	ask := because != nil && r.open && served > 0 && now.Sub(r.asked) >= clockAsk
	if ask {
		r.open, r.asked = false, now
	}
	ours := because != nil && served == 0 && (len(r.by) >= wanted || now.Sub(r.since) >= clockPatience)
	if ours {
		clear(r.by) // the next verdict needs new ones
	}
	d.mu.Unlock()
	if ask {
		for _, s := range h.shards {
			if s.serving.Load() {
				s.post(func(s *Shard) { s.tryWrite() })
			}
		}
	}
	if ours {
		for p := range h.Partitions() {
			d.add(p, DeclinedClock, because)
		}
	}
}

// watchDeclines looks at what this replica can't serve until ctx ends, and tells the group.
func (h *Host) watchDeclines(ctx context.Context) {
	tick := time.NewTicker(declineLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			h.lookAtStore(now)
			h.lookAtReading(now)
			h.lookAtClock(now)
			h.declines.lift(now, h.lasts)
			h.tellDeclines(now)
		}
	}
}

// lookAtStore declines partitions that can't be read, or may not be, and all that can't be stored for long.
func (h *Host) lookAtStore(now time.Time) {
	for p := range h.Partitions() {
		denied := h.cfg.Log.Denied(p)
		if h.declines.illFor(p, DeclinedRights, now, denied != nil) >= deniedPatience {
			h.declines.add(p, DeclinedRights, denied)
		}
		if err := h.unreached(p, unreachedPatience); err != nil {
			h.declines.add(p, DeclinedBroker, err)
		}
		if err := h.unclaimable(p, unreachedPatience); err != nil {
			h.declines.add(p, DeclinedBroker, err)
		}
		err := h.cfg.Store.Err(p)
		if errors.Is(err, eventlog.ErrRefused) {
			h.declines.add(p, DeclinedRecord, err)
		}
		if h.declines.illFor(p, DeclinedStorage, now, errors.Is(err, projection.ErrStorage)) >= declinePatience {
			h.declines.add(p, DeclinedStorage, err)
		}
	}
}

// illFor notes whether something is wrong with a partition, and returns for how long it has been.
func (d *declines) illFor(p int32, why string, now time.Time, ill bool) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := illness{p, why}
	if !ill {
		delete(d.ill, key)
		return 0
	}
	if d.ill == nil {
		d.ill = map[illness]time.Time{}
	}
	if d.ill[key].IsZero() {
		d.ill[key] = now
	}
	return now.Sub(d.ill[key])
}

// unreached is why p can't be reached, where the broker that leads it has not answered this replica for so long.
func (h *Host) unreached(p int32, patience time.Duration) error {
	silent, err := h.cfg.Log.Unreached(p)
	if silent < patience {
		return nil
	}
	return err
}

// unclaimable is why p can't be claimed, where the broker that coordinates its claims has not answered this replica for so long. A shard that is served here has its claim, and
// is served on.
func (h *Host) unclaimable(p int32, patience time.Duration) error {
	silent, err := h.cfg.Log.Unclaimable(p)
	if silent < patience || h.shards[p].serving.Load() {
		return nil
	}
	return err
}

// lasts says that a reason can be seen to be there still.
func (h *Host) lasts(d *Decline) bool {
	err := h.cfg.Store.Err(d.Partition)
	return errors.Is(err, eventlog.ErrRefused) || errors.Is(err, projection.ErrStorage) || h.cfg.Log.Denied(d.Partition) != nil || h.unreached(d.Partition, 0) != nil ||
		h.unclaimable(d.Partition, 0) != nil
}

// tellDeclines tells the group what changed. It makes a rebalance only where that moves something: a shard that is assigned here and declined, and the group
// has not heard of it, or one that may come again. Of others the group hears with the next one. What was found out while a join was under way it has not heard.
func (h *Host) tellDeclines(at time.Time) {
	said := h.cfg.Membership.Declined()
	d := &h.declines
	d.mu.Lock()
	now := map[int32]string{}
	var gone, unread, back []int32
	var because error
	until := time.Time{}
	for p, x := range d.by {
		if x.now {
			now[p] = x.Why
			switch _, ok := said[p]; {
			case ok || !h.shards[p].wantedNow.Load():
			case x.Why == DeclinedReading:
				unread = append(unread, p)
			default:
				gone, because, until = append(gone, p), x.Err, x.Until
			}
		}
	}
	for p := range said {
		if _, ok := now[p]; !ok {
			back = append(back, p)
		}
	}
	urgent := len(gone)+len(unread)+len(back) > 0 && (!maps.Equal(now, d.urged) || at.Sub(d.urgedAt) >= declineAgain)
	if urgent {
		d.urged, d.urgedAt = now, at
	}
	tell := d.fresh || urgent
	d.fresh = false
	d.mu.Unlock()
	if !tell {
		return
	}
	if urgent && len(gone) > 0 {
		h.log.Log(context.Background(), slog.LevelWarn, "shards can't be served here and are left to other replicas, if they can",
			"shards", len(gone), "partitions", partitionRanges(gone), "because", because, "again", time.Until(until).Round(time.Second))
	}
	if urgent && len(unread) > 0 {
		h.log.Info("shards are left to other replicas, if they can serve them, until the log is read here", "shards", len(unread), "partitions", partitionRanges(unread))
	}
	if urgent && len(back) > 0 {
		h.log.Info("shards may be assigned to this replica again", "shards", len(back), "partitions", partitionRanges(back))
	}
	h.cfg.Membership.Decline(now, urgent)
}
