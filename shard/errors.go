package shard

import (
	"errors"
	"fmt"
)

// What a request can meet besides a refusal of the group itself (*streams.Error).
var (
	// ErrNotOwner: another replica owns the partition, or this one no longer does (NOT_COORDINATOR).
	ErrNotOwner = errors.New("this replica does not own the group's partition")
	// ErrLoading: this replica is to own the partition and does not serve it yet, or can't take more work at the moment; try here again (COORDINATOR_LOAD_IN_PROGRESS).
	ErrLoading = errors.New("the group's partition is being loaded")
	// ErrUnavailable: nobody is known to own the partition, or the replica is starting or stopping (COORDINATOR_NOT_AVAILABLE).
	ErrUnavailable = errors.New("no coordinator is available for the group")
	// ErrGroupGone: a join was judged by a group that was there then, and is gone (Caller.Unasked). It is one of ErrLoading for whoever does not judge it again.
	ErrGroupGone = fmt.Errorf("%w: the group is gone since the request came", ErrLoading)
	// ErrBlind: the cluster does not let this replica read the partition, or the broker that leads it does not answer this replica; what it knows of it grows older
	// and older. Others may know more.
	ErrBlind = errors.New("this replica does not see what is written to the group's partition")
	// ErrTooLarge: the records of the request do not fit one batch of the log (UNKNOWN_SERVER_ERROR, as Kafka answers).
	ErrTooLarge = errors.New("the request's records exceed the log's batch size")
	// ErrDescribed: a topology description of the group may be stored; it has to be deleted before the group may go.
	ErrDescribed = errors.New("a topology description of the group may be stored")
	// ErrInternal: a record that a handler made could not be applied; nothing was written (UNKNOWN_SERVER_ERROR).
	ErrInternal = errors.New("internal error of the group's state machine")
)
