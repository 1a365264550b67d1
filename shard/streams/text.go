package streams

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"streamkeeper/eventlog"
)

// String prints the logged state, stable and complete: two groups with the same text behave the same but for soft facts.
func (g *Group) String() string {
	var b strings.Builder
	if !g.exists {
		b.WriteString("no group " + g.id + "\n")
		g.writeConfig(&b)
		return b.String()
	}
	m := g.meta
	fmt.Fprintf(&b, "group %s %s epoch=%d assignment=%d@%d hash=%d validated=%d stored=%d failed=%d configs=%v\n",
		g.id, g.State(), m.Epoch, g.assignmentEpoch, g.assignmentTimestamp, m.MetadataHash, m.ValidatedTopologyEpoch,
		m.StoredDescriptionTopologyEpoch, m.FailedDescriptionTopologyEpoch, m.LastAssignmentConfigs)
	if r := g.refusal; r != nil {
		fmt.Fprintf(&b, "refused epoch=%d at=%d by=%s member=%s %q\n", r.TopologyEpoch, r.Timestamp, r.Plugin, r.Member, r.Reason)
	}
	if m.Conversion != eventlog.ConversionNone {
		fmt.Fprintf(&b, "conversion %v\n", m.Conversion)
	}
	if g.topology != nil {
		fmt.Fprintf(&b, "topology epoch=%d\n", g.topology.value.Epoch)
		for _, s := range g.topology.value.Subtopologies {
			fmt.Fprintf(&b, "  %+v\n", s)
		}
	}
	for _, id := range g.memberIDs() {
		m := g.members[id]
		fmt.Fprintf(&b, "member %s %s\n", id, metaText(m.meta))
		fmt.Fprintf(&b, "  %s epoch=%d previous=%d %s", stateText(m.state), m.epoch, m.previousEpoch, m.assigned)
		if !m.revoking.empty() {
			fmt.Fprintf(&b, " revoking %s", m.revoking)
		}
		b.WriteString("\n")
	}
	for _, id := range slices.Sorted(maps.Keys(g.targets)) {
		fmt.Fprintf(&b, "target %s %s\n", id, g.targets[id])
	}
	g.writeConfig(&b)
	return b.String()
}

func (g *Group) writeConfig(b *strings.Builder) {
	if g.config != nil {
		fmt.Fprintf(b, "configured %v\n", g.config.Configs) // maps print in the order of their keys
	}
}

func metaText(m *eventlog.Member) string {
	var b strings.Builder
	opt := func(name string, p *string) {
		if p != nil {
			fmt.Fprintf(&b, " %s=%s", name, *p)
		}
	}
	fmt.Fprintf(&b, "client=%s host=%s timeout=%d topology=%d process=%s", m.ClientID, m.ClientHost, m.RebalanceTimeoutMs, m.TopologyEpoch, m.ProcessID)
	opt("instance", m.InstanceID)
	opt("rack", m.RackID)
	if m.UserEndpoint != nil {
		fmt.Fprintf(&b, " endpoint=%s:%d", m.UserEndpoint.Host, m.UserEndpoint.Port)
	}
	for _, kv := range m.ClientTags {
		fmt.Fprintf(&b, " tag:%s=%s", kv.Key, kv.Value)
	}
	return b.String()
}

func stateText(s eventlog.MemberState) string {
	switch s {
	case eventlog.MemberStable:
		return "STABLE"
	case eventlog.MemberUnrevokedTasks:
		return "UNREVOKED_TASKS"
	case eventlog.MemberUnreleasedTasks:
		return "UNRELEASED_TASKS"
	}
	return "UNKNOWN"
}

// String prints the roles that have tasks: "active 0:[0 1@2] standby 1:[0]"; an epoch is printed where it is not 0.
func (a assignment) String() string {
	var parts []string
	for _, r := range []struct {
		name string
		t    tasks
	}{{"active", a.active}, {"standby", a.standby}, {"warmup", a.warmup}} {
		if len(r.t) > 0 {
			parts = append(parts, r.name+" "+r.t.String())
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, " ")
}

func (t tasks) String() string {
	var parts []string
	t.bySubtopology(func(sub string, share tasks) {
		var p []string
		for _, x := range share {
			s := itoa(x.partition)
			if x.epoch != 0 {
				s += "@" + itoa(x.epoch)
			}
			p = append(p, s)
		}
		parts = append(parts, sub+":["+strings.Join(p, " ")+"]")
	})
	return strings.Join(parts, " ")
}
