package projection

import (
	"streamkeeper/eventlog"
)

// Stored is a record as the projection holds it, with the offset it had in the log.
type Stored struct {
	Offset int64
	Record eventlog.Record
}

// Reader is what shards read; *Store is one. While a partition is read again after a rebuild, the reads of its records
// fail with ErrLoading: what is there is a part. (Err does not: it passes.)
type Reader interface {
	// Applied is the first offset of p that is not applied yet.
	Applied(p int32) int64
	// Owner is the last ownership record applied in p.
	Owner(p int32) (eventlog.Owner, bool)
	// Err says why p can't be served: it wraps eventlog.ErrRefused, or is a storage error (full disk, damage). nil if it can.
	Err(p int32) error

	// Group returns the records of a streams group in the order in which hydration applies them (types 23, 17, 19, 22,
	// 21, 20, 32002, 32001; within a type by member id); nothing where the group is unknown. One that does not exist may have a
	// configuration.
	Group(p int32, group string) ([]Stored, error)
	// HasGroup says that a type-17 record of the group is there.
	HasGroup(p int32, group string) (bool, error)
	// Groups calls f with each group that has a type-17 record, ascending by id, until f returns false.
	Groups(p int32, f func(group string) bool) error
	// GroupsWithMembers does the same for groups with at least one type-19 record.
	GroupsWithMembers(p int32, f func(group string) bool) error
	// GroupsToHydrate calls f with the records of each group with a type-19 record, as Group returns them, ascending by id, until f returns
	// false. It costs a scan, where Group costs a search for each group.
	GroupsToHydrate(p int32, f func(group string, records []Stored) bool) error
	// GroupsOfTopic does the same as Groups for groups whose topology names the topic.
	GroupsOfTopic(p int32, topic string, f func(group string) bool) error
	// GroupConfig returns what was configured for a group (type 32001), nothing where nothing was. The map must not be modified.
	GroupConfig(p int32, group string) (map[string]string, error)
	// GroupsWithConfig calls f with each group that has a configuration, ascending by id, until f returns false.
	GroupsWithConfig(p int32, f func(group string) bool) error
	// Offset returns the committed offset of a partition.
	Offset(p int32, group, topic string, partition int32) (Stored, bool, error)
	// Offsets calls f with each committed offset of the group, ascending by topic and partition, until f returns false.
	Offsets(p int32, group string, f func(Stored) bool) error
	// Pending calls f with each pending transactional offset of the group, until f returns false.
	Pending(p int32, group string, f func(producerID int64, s Stored) bool) error
	// ReadMany gives f a reader of groups, for a sweep over many: what is read is of one moment, and costs less than single reads do.
	ReadMany(p int32, f func(GroupReader) error) error
}
