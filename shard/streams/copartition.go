package streams

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"streamkeeper/client/explain"
	"streamkeeper/eventlog"
)

// copartition makes the topics of each copartition group have one partition count (CopartitionedTopicsEnforcer of
// Kafka 4.4). Groups are taken in the order of the subtopologies, and what one decides the next one sees.
func (c *counting) copartition() error {
	fixed, internal := map[string]bool{}, map[string]bool{}
	for _, s := range c.t.sorted {
		for _, info := range s.RepartitionSourceTopics {
			internal[info.Name] = true
			if info.Partitions != 0 {
				fixed[info.Name] = true
			}
		}
	}
	for _, s := range c.t.sorted {
		for _, group := range s.CopartitionGroups {
			if err := c.copartitionGroup(copartitioned(s, group), fixed, internal); err != nil {
				return err
			}
		}
	}
	return nil
}

// copartitioned resolves the indexes of a copartition group, ascending by name. Validate checked them; in a log of another
// writer those that name nothing are passed over.
func copartitioned(s *eventlog.Subtopology, group eventlog.CopartitionGroup) []string {
	var names []string
	for _, i := range group.SourceTopics {
		if i >= 0 && int(i) < len(s.SourceTopics) {
			names = append(names, s.SourceTopics[i])
		}
	}
	for _, i := range group.RepartitionSourceTopics {
		if i >= 0 && int(i) < len(s.RepartitionSourceTopics) {
			names = append(names, s.RepartitionSourceTopics[i].Name)
		}
	}
	return sortedSet(names)
}

// copartitionGroup decides the count of one group: that of its topics which are not internal, and where all are, the
// one that the topology fixes, else the largest.
func (c *counting) copartitionGroup(names []string, fixed, internal map[string]bool) error {
	external, repartition := map[string]int32{}, map[string]int32{}
	for _, name := range names {
		n, _ := c.count(name) // sources exist and repartition sources are decided by now
		if internal[name] {
			repartition[name] = n
		} else {
			external[name] = n
		}
	}
	var use int32
	switch {
	case len(names) == 0:
		return nil
	case len(external) > 0:
		for _, n := range external {
			use = n
		}
		if unequal(external, use) {
			return differentCounts(external)
		}
	case len(fixed) > 0:
		counts := map[string]int32{}
		for name := range fixed {
			counts[name], _ = c.count(name)
			use = counts[name]
		}
		if unequal(counts, use) {
			return differentCounts(repartition)
		}
	default:
		for _, n := range repartition {
			use = max(use, n)
		}
		if use == 0 {
			return refuse(codeStreamsInvalidTopology, "All topics in the copartition group had undefined partition number: [%s]", strings.Join(names, ", "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(repartition)) {
		if n := repartition[name]; fixed[name] && n != use {
			return &status{statusWrongPartitions, fmt.Sprintf("Number of partitions [%d] of repartition topic [%s] doesn't match number of partitions [%d] of the source topic.", n, name, use),
				[]explain.Topic{{Name: name, Expected: use, Found: n}}}
		}
		c.decided[name] = use
	}
	return nil
}

func unequal(counts map[string]int32, n int32) bool {
	for _, m := range counts {
		if m != n {
			return true
		}
	}
	return false
}

// differentCounts prints the counts as a Java map.
func differentCounts(counts map[string]int32) *status {
	var b strings.Builder
	var topics []explain.Topic
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		topics = append(topics, explain.Topic{Name: name, Found: counts[name]})
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s=%d", name, counts[name])
	}
	return &status{statusWrongPartitions, "Following topics do not have the same number of partitions: [{" + b.String() + "}]", topics}
}
