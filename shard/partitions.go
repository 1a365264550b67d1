package shard

import (
	"context"
	"errors"
	"fmt"

	"streamkeeper/eventlog"
)

// ErrPartitions: the log topic has another number of partitions than when an owner claimed one of them. It does not pass.
var ErrPartitions = errors.New("the partition count of the log topic was changed")

// Groups belong to partitions by their number, so a topic that was given more of them would have groups where nobody looks for them, and their
// applications would start over. The projection remembers the number; a replica that begins with an empty data directory learns it from the ownership
// records. One that was added has no record, and would be served as if it were new. So before its first claim it reads all partitions to their ends, or one
// record that says the number of now: whoever wrote that had made sure of it, and partitions are never taken away. Without the latter one partition
// that can't be read, because its brokers are away, would keep a replica that starts from all others.

// counted says that the log has as many partitions as its owners knew. The error is ErrPartitions.
func (h *Host) counted() (bool, error) {
	if h.countKnown.Load() {
		return true, nil
	}
	read, said := true, false
	for _, s := range h.shards {
		if !h.cfg.Store.AtEnd(s.partition) && !errors.Is(h.cfg.Store.Err(s.partition), eventlog.ErrRefused) {
			read = false
		}
		if o, ok := h.cfg.Store.Owner(s.partition); ok {
			if err := h.sameCount(o); err != nil {
				return false, err
			}
			said = said || o.Partitions == h.Partitions()
		}
	}
	if !read && !said {
		return false, nil
	}
	h.countKnown.Store(true)
	return true, nil
}

// sameCount ends the host where an owner knew another number of partitions. Records of earlier versions do not say.
func (h *Host) sameCount(o eventlog.Owner) error {
	if o.Partitions == 0 || o.Partitions == h.Partitions() {
		return nil
	}
	err := fmt.Errorf("%w: topic %s has %d partitions, and had %d when node %d claimed one: groups belong to partitions by that count, so groups and "+
		"committed offsets would not be found. Use a topic with %d", ErrPartitions, h.cfg.Log.Identity().Topic, h.Partitions(), o.Partitions, o.NodeID, o.Partitions)
	h.endWith(err)
	return err
}

// endWith makes Run return the error.
func (h *Host) endWith(err error) {
	h.ending.Lock()
	defer h.ending.Unlock()
	if h.cancel != nil {
		h.cancel(err)
	}
}

// ends makes a context for Run that endWith ends, and a function that says with what.
func (h *Host) ends(ctx context.Context) (context.Context, func(error) error) {
	own, cancel := context.WithCancelCause(ctx)
	h.ending.Lock()
	h.cancel = cancel
	h.ending.Unlock()
	return own, func(err error) error {
		if why := context.Cause(own); ctx.Err() == nil && why != nil {
			err = why
		}
		cancel(nil)
		return err
	}
}
