package groupconfig

import (
	"maps"
	"strings"

	"streamkeeper/eventlog"
	"streamkeeper/shard/streams"
)

// Op is what a change does, by the numbers of IncrementalAlterConfigs.
type Op int8

// The operations of IncrementalAlterConfigs.
const (
	Set Op = iota
	Delete
	Append
	Subtract
)

// Change is one change of IncrementalAlterConfigs; Delete has no use for Value.
type Change struct {
	Op    Op
	Name  string
	Value string
}

// Alter makes the configuration that changes lead to; current is left as it is. A refusal is Kafka 4.4's (ConfigurationControlManager):
// INVALID_CONFIG with its text. What there is must be valid as well: bounds may have moved since it was written.
func (b *Broker) Alter(current map[string]string, changes []Change) (map[string]string, *streams.Error) {
	next := maps.Clone(current)
	if next == nil {
		next = map[string]string{}
	}
	for _, c := range changes {
		switch c.Op {
		case Set:
			next[c.Name] = c.Value
		case Delete:
			delete(next, c.Name)
		case Append:
			// Kafka 4.4 knows lists of topics and brokers only, and refuses this for each configuration of a group.
			return nil, refuse("Can't APPEND to key %s because its type is not LIST.", c.Name)
		case Subtract:
			return nil, refuse("Can't SUBTRACT to key %s because its type is not LIST.", c.Name)
		}
	}
	return b.checked(next)
}

// Replace makes wanted the configuration (AlterConfigs); refusals as Alter's.
func (b *Broker) Replace(wanted map[string]string) (map[string]string, *streams.Error) {
	return b.checked(maps.Clone(wanted))
}

func (b *Broker) checked(next map[string]string) (map[string]string, *streams.Error) {
	if err := b.Validate(next); err != nil {
		return nil, err
	}
	for name, text := range next {
		// The bound of strings in records, for the same reason: no group needs as much, and each byte is kept and read by every replica.
		if len(text) > eventlog.StringBytesMax {
			return nil, refuse("The value of configuration %s is longer than %d bytes.", name, eventlog.StringBytesMax)
		}
		next[name] = strings.ToValidUTF8(text, "\uFFFD") // Java has done so by now; JSON would on the way to the log
	}
	if len(next) == 0 {
		return nil, nil
	}
	return next, nil
}
