package shard

import (
	"context"
	"maps"

	"streamkeeper/eventlog"
	"streamkeeper/shard/groupconfig"
	"streamkeeper/shard/streams"
)

// The configuration of a group is a record in the group's partition (type 32001). It is there whether the group is or not; Kafka keeps it
// with the controller, where it outlives groups as well.

// config is the configuration that is in effect for a group. It is made again when the group has another one.
func (s *Shard) config(g *group) streams.Config {
	if configured := g.Config(); !g.hasConfig || configured != g.configured {
		var notes []string
		g.effective, notes = s.host.cfg.Groups.Effective(configsOf(configured))
		g.configured, g.hasConfig = configured, true
		for _, n := range notes {
			s.log.Warn("what is configured for a group can't be taken as it is", "group", g.ID(), "why", n)
		}
	}
	return g.effective
}

func configsOf(c *eventlog.GroupConfig) map[string]string {
	if c == nil {
		return nil
	}
	return c.Configs
}

// apart divides a configuration into what clients can set and what is ours (isReserved), which there is of the ownership group alone.
func apart(configs map[string]string) (theirs, own map[string]string) {
	for name, text := range configs {
		if isReserved(name) {
			if own == nil {
				own = map[string]string{}
			}
			own[name] = text
		}
	}
	if own == nil {
		return configs, nil
	}
	theirs = maps.Clone(configs)
	maps.DeleteFunc(theirs, func(name, _ string) bool { return isReserved(name) })
	return theirs, own
}

// AlterConfig changes the configuration of a group, which needs not exist: alter makes the next one of the one there is, or refuses
// (*streams.Error); it must not modify what it is given. With validateOnly nothing is changed.
func (h *Host) AlterConfig(ctx context.Context, group string, validateOnly bool, alter func(b *groupconfig.Broker, current map[string]string) (map[string]string, *streams.Error)) error {
	_, err := call(ctx, h, "alter config", group, func(t *turn) (struct{}, effect, error) {
		current, own := apart(configsOf(t.g.Config()))
		next, refused := alter(h.cfg.Groups, current)
		if refused != nil {
			return struct{}{}, effect{}, refused
		}
		if validateOnly || maps.Equal(next, current) {
			return struct{}{}, effect{}, nil
		}
		if len(own) > 0 {
			maps.Copy(own, next) // alter knows none of those names
			next = own
		}
		record := eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeGroupConfig, Group: group}}
		if len(next) > 0 {
			record.Value = &eventlog.GroupConfig{Format: eventlog.GroupConfigFormat, Configs: next}
		}
		return struct{}{}, effect{records: []eventlog.Record{record}}, nil
	})
	return err
}

// GroupConfig is what is configured for a group, as far as this replica has read the log. It needs not own the shard. The map must not
// be modified.
func (h *Host) GroupConfig(group string) (map[string]string, error) {
	return h.cfg.Store.GroupConfig(h.Partition(group), group)
}

// GroupsWithConfig calls f with each group of partition p for which something is configured, ascending by id, as far as this replica
// has read the log. What is ours of the ownership group's is not configured by anybody.
func (h *Host) GroupsWithConfig(p int32, f func(group string)) error {
	own, ours := h.group(), false
	if p == h.Partition(own) {
		configs, err := h.GroupConfig(own)
		if err != nil {
			return err
		}
		theirs, _ := apart(configs)
		ours = len(theirs) == 0
	}
	return h.cfg.Store.GroupsWithConfig(p, func(group string) bool {
		if group != own || !ours {
			f(group)
		}
		return true
	})
}

// Groups are the settings of streams groups of this replica, and what can be configured for one.
func (h *Host) Groups() *groupconfig.Broker { return h.cfg.Groups }
