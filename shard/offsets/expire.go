package offsets

import "streamkeeper/eventlog"

// Expire returns tombstones for the group's expired offsets, ascending by topic and partition. allGone says that no
// offset is left then and no transaction is open: an empty group may go with them. A group without any offset is all
// gone at once.
//
// An offset expires at its explicit expire timestamp if it has one, else Retention after its commit: the commit, not
// the moment when the group became empty (Kafka's rule for all but classic groups). It stays while the group is subscribed
// to the topic, which only a group with members is, and while a transaction is open on the partition.
//
// The records need not be written atomically: what is lost of them expires in the next sweep.
func Expire(env Env, view View, group string, subscribed func(topic string) bool) (recs []eventlog.Record, allGone bool) {
	open := openSet(view)
	allGone = len(open) == 0
	var expired []TopicPartition
	topic, sub := "", false
	for tp, c := range view.All() {
		if tp.Topic != topic || topic == "" {
			topic, sub = tp.Topic, subscribed(tp.Topic)
		}
		if sub || open[tp] || !PastRetention(env, c) {
			allGone = false
			continue
		}
		expired = append(expired, tp)
	}
	return tombstones(group, expired), allGone
}

// PastRetention says that the offset's time is over. Whether it expires depends on its topic and on open transactions
// too: Expire judges that.
func PastRetention(env Env, c eventlog.OffsetCommit) bool {
	if c.ExpireTimestamp != noExpiry {
		return env.Now >= c.ExpireTimestamp
	}
	return env.Now-c.CommitTimestamp >= env.Retention.Milliseconds()
}
