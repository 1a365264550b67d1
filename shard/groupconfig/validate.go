package groupconfig

import (
	"maps"
	"slices"
	"strings"

	"streamkeeper/shard/streams"
)

// Validate says whether a configuration is one that Kafka 4.4 takes (GroupConfig.validate): the refusal is INVALID_CONFIG with Kafka's
// text about the first thing that is wrong, in Kafka's order.
func (b *Broker) Validate(configs map[string]string) *streams.Error {
	for _, name := range slices.Sorted(maps.Keys(configs)) { // in Kafka the order of a hash map
		if byName[name] == nil {
			return refuse("Unknown group config name: %s", name)
		}
	}
	if text, ok := configs[rackAwareTags]; ok && repeats(split(text)) {
		return refuse("%s must not contain duplicate tag keys.", rackAwareTags)
	}
	values := map[string]parsed{}
	for i := range definitions {
		d := &definitions[i]
		text, ok := configs[d.name]
		if !ok {
			continue
		}
		p, err := parse(d.typ, d.min, d.name, text)
		if err != nil {
			return err
		}
		values[d.name] = p
	}
	for _, name := range bounded {
		if p, ok := values[name]; ok {
			if err := b.checkBounds(byName[name], p.number); err != nil {
				return err
			}
		}
	}
	if p, ok := values[assignorName]; ok {
		if known := b.values[assignors].parsed.list; !slices.Contains(known, p.text) {
			return refuse("%s '%s' is not a registered task assignor. Registered assignors are: [%s].", assignorName, p.text, strings.Join(known, ", "))
		}
	}
	return b.checkSession(values)
}

func repeats(list []string) bool {
	return len(slices.Compact(slices.Sorted(slices.Values(list)))) < len(list)
}

func (b *Broker) checkBounds(d *definition, n int64) *streams.Error {
	least, most := b.bounds(d)
	switch {
	case n >= least && n <= most:
		return nil
	case d.lower != "" && d.upper != "":
		return refuse("%s must be in the range %d to %d inclusive.", d.name, least, most)
	case n > most:
		return refuse("%s must be less than or equal to %d", d.name, most)
	}
	return refuse("%s must be greater than or equal to %d", d.name, least)
}

// checkSession: a member must be able to send a heartbeat before its session is over. Compared is what would be in effect, where one
// of the two is configured.
func (b *Broker) checkSession(values map[string]parsed) *streams.Error {
	session, hasSession := values[sessionTimeout]
	heartbeat, hasHeartbeat := values[heartbeatInterval]
	if !hasSession && !hasHeartbeat {
		return nil
	}
	if !hasSession {
		session.number = b.config.SessionTimeout.Milliseconds()
	}
	if !hasHeartbeat {
		heartbeat.number = b.config.HeartbeatInterval.Milliseconds()
	}
	if session.number <= heartbeat.number {
		return refuse("%s must be greater than %s", sessionTimeout, heartbeatInterval)
	}
	return nil
}
