package shard

import "time"

const (
	// inboxMax is how many requests may wait for one shard: beyond it they are answered ErrLoading at once, so that a slow log
	// fills neither the heap nor the clients' patience.
	inboxMax = 20_000
	// backlogBytesMax is how many bytes may wait for acknowledgement in one partition before new writes are refused with ErrLoading.
	backlogBytesMax = 32 << 20
	// overlayMax is how many offset commits may be appended and not yet applied by the projection (D7): beyond it commits are
	// refused with ErrLoading, because a projection that far behind would make the heap its copy.
	overlayMax = 200_000
	// unprovenMax is how many answers may wait for the projection: beyond it requests are answered ErrLoading, so that a log that is written and not read
	// does not fill the heap.
	unprovenMax = 20_000
	// evictInterval is how often a shard looks for groups without members that may leave memory.
	evictInterval = 10 * time.Second
	// idleGroupsMax is how many groups without members may stay in memory between two looks; above it they leave at once.
	idleGroupsMax = 1_000
	// claimRetryMin and claimRetryMax bound the pause after a failed claim, doubling in between: a broker that is away is
	// not flooded, and comes back into use within seconds.
	claimRetryMin = 100 * time.Millisecond
	claimRetryMax = 5 * time.Second
	// leaseRecheck is how soon a shard looks again whether its lease has come back.
	leaseRecheck = 200 * time.Millisecond
)
