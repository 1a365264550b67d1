package groupconfig

import (
	"fmt"
	"math"
	"strings"
	"time"

	"streamkeeper/shard/streams"
)

// Effective is what a configuration makes of the replica's settings (GroupConfig.evaluate of Kafka 4.4). Values that bounds have moved away
// from are taken at the bound, and what can't be read (another version wrote it) counts as not configured; notes say so, for
// the log.
func (b *Broker) Effective(configs map[string]string) (c streams.Config, notes []string) {
	c = b.config
	if len(configs) == 0 {
		return c, nil
	}
	for i := range definitions {
		d := &definitions[i]
		text, ok := configs[d.name]
		if !ok {
			continue
		}
		p, err := parse(d.typ, d.min, d.name, text)
		if err != nil {
			notes = append(notes, err.Message)
			continue
		}
		least, most := b.bounds(d)
		if n := min(max(p.number, least), most); n != p.number {
			notes = append(notes, fmt.Sprintf("%s is %d, beyond the bound %d, which counts instead", d.name, p.number, n))
			p.number = n
		}
		d.put(&c, p)
	}
	if c.SessionTimeout <= c.HeartbeatInterval {
		notes = append(notes, fmt.Sprintf("%s (%d) is not greater than %s (%d): members are removed between two heartbeats",
			sessionTimeout, c.SessionTimeout.Milliseconds(), heartbeatInterval, c.HeartbeatInterval.Milliseconds()))
	}
	return c, notes
}

// bounds are those that the operator can set; the least and greatest number where there are none.
func (b *Broker) bounds(d *definition) (least, most int64) {
	bound := func(which string, none int64) int64 {
		switch {
		case which == "":
			return none
		case strings.Contains(which, "."): // named in full
			return b.number(prefix + Prefix + which)
		}
		return b.number(prefix + Prefix + which + "." + strings.TrimPrefix(d.name, Prefix))
	}
	return bound(d.lower, math.MinInt64), bound(d.upper, math.MaxInt64)
}

// put makes a value count. Two have no effect on streams groups, as in Kafka 4.4: assignor.offload.enable and num.warmup.replicas.
func (d *definition) put(c *streams.Config, p parsed) {
	ms := time.Duration(p.number) * time.Millisecond
	switch d.name {
	case sessionTimeout:
		c.SessionTimeout = ms
	case heartbeatInterval:
		c.HeartbeatInterval = ms
	case numStandbyReplicas:
		c.NumStandbyReplicas = int(p.number)
	case initialDelay:
		c.InitialRebalanceDelay = ms
	case assignmentInterval:
		c.AssignmentInterval = ms
	case taskOffsetInterval:
		c.TaskOffsetInterval = ms
	case rackAwareTags:
		c.RackAwareTags = p.list
	case recoveryLag:
		c.AcceptableRecoveryLag = p.number
	case assignorName:
		c.Assignor = p.text
	}
}
