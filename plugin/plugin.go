package plugin

import "context"

// Void is the value of futures that only say that something is done.
type Void = struct{}

// Plugin stores topology descriptions (Kafka's StreamsGroupTopologyDescriptionPlugin). Each method may be called from many
// goroutines at once, for the same group too, and each is idempotent: a call whose outcome was lost is made again.
//
// A method should return at once and complete its future later (Go helps). Its ctx ends when the outcome is no longer
// waited for: the time-out passed, the group's shard moved, the process stops. The future should then complete soon,
// with any error.
//
// A future that fails with an error made by Permanent (or one that wraps such an error) says that this description will
// never be accepted at this topology epoch: nobody is asked for it again until the epoch advances. Any other error
// is transient: a member is asked again after a back-off. The error's text goes to the client, cut to
// MessageBytesMax.
//
// Group ids are any strings: slashes, dots alone, quotes, control characters, thousands of bytes. Ids that differ in one
// byte are different groups.
type Plugin interface {
	// Name says in traces, logs and configuration which plugin this is; it never changes.
	Name() string

	// Set stores the description of the group at the topology epoch, in place of what the epoch had. d is the plugin's own
	// copy, and valid (Description.Validate). A description of a lower epoch that arrives later, as two members may push
	// at once during an upgrade, must not displace a higher one; whether the lower one can still be read is the plugin's affair.
	Set(ctx context.Context, group string, topologyEpoch int32, d *Description) *Future[Void]

	// Get returns the description that was set last for exactly this epoch; nil, without an error, where there is none
	// (any more). The caller gets a value of its own: later calls must not change it.
	Get(ctx context.Context, group string, topologyEpoch int32) *Future[*Description]

	// Delete removes all that is stored for the group, of every epoch. That nothing is stored is a success. A group of the
	// same id may be made afterwards and begins with any epoch, also a lower one.
	Delete(ctx context.Context, group string) *Future[Void]

	// Close releases what the plugin holds, within ctx. Futures under way complete, calls made afterwards fail; a
	// second Close does nothing.
	Close(ctx context.Context) error
}
