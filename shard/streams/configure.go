package streams

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"streamkeeper/client/explain"
	"streamkeeper/eventlog"
)

// Status codes of a heartbeat response.
const (
	statusStaleTopology      int8 = 0
	statusMissingSources     int8 = 1
	statusWrongPartitions    int8 = 2
	statusMissingInternal    int8 = 3
	statusShutdown           int8 = 4
	statusAssignmentDelayed  int8 = 5
	statusMissingClientTags  int8 = 6
	topicNamesInStatusMax         = 3 // as Kafka 4.4: a status is read by people
	apiVersionWithClientTags      = 1 // older clients fail on a status code that they do not know
)

// configured is a topology with the partition counts that follow from the cluster's topics (ConfiguredTopology of
// Kafka 4.4). It is never modified once it is known.
type configured struct {
	// hash is the MetadataHash of the topics that the counts follow from.
	hash int64
	// subs are ascending by id; nil where the counts can't be decided (statuses 1 and 2).
	subs []configuredSub
	// problem is why the topology is not ready; nil: it is.
	problem *status
	// create lists the missing internal topics, ascending by name.
	create []CreatableTopic
}

// status is why a topology is not ready: what its members are told, and the topics that it is about, ascending by name.
type status struct {
	code   int8
	detail string
	topics []explain.Topic
}

func (s *status) Error() string { return s.detail }

type configuredSub struct {
	id                 string
	tasks              int32 // number of tasks
	sources            []string
	sinks              []string
	repartitionSources []eventlog.TopicInfo // with their decided counts
	changelogs         []eventlog.TopicInfo // with their decided counts
}

func (c *configured) ready() bool { return c.problem == nil }

// sub finds a subtopology by id; nil if there is none.
func (c *configured) sub(id string) *configuredSub {
	i, ok := slices.BinarySearchFunc(c.subs, id, func(s configuredSub, id string) int { return strings.Compare(s.id, id) })
	if !ok {
		return nil
	}
	return &c.subs[i]
}

// configure decides the partition counts of repartition and changelog topics and the number of tasks
// (InternalTopicManager of Kafka 4.4). A *Error refuses the topology for good; what a change of the cluster's
// topics can cure is in the result's problem.
func configure(t *topology, topics Topics) (*configured, error) {
	c := &counting{t: t, topics: topics, decided: map[string]int32{}}
	for _, step := range []func() error{c.checkSources, c.decideRepartition, c.copartition, c.decideChangelogs} {
		if err := step(); err != nil {
			return failed(err)
		}
	}
	subs := make([]configuredSub, len(t.sorted))
	for i, s := range t.sorted {
		subs[i] = c.configureSub(s)
	}
	create, err := c.missing(subs)
	if err != nil {
		return failed(err)
	}
	r := &configured{subs: subs, create: create}
	if len(create) > 0 {
		names, topics := make([]string, len(create)), make([]explain.Topic, len(create))
		for i, t := range create {
			names[i], topics[i] = t.Name, explain.Topic{Name: t.Name, Expected: t.Partitions}
		}
		r.problem = &status{statusMissingInternal, "Internal topics are missing: " + summarize(names), topics}
	}
	return r, nil
}

// failed tells a status apart from a refusal.
func failed(err error) (*configured, error) {
	if s, ok := err.(*status); ok {
		return &configured{problem: s}, nil
	}
	return nil, err
}

// counting is one run of configure.
type counting struct {
	t       *topology
	topics  Topics
	decided map[string]int32 // partition counts of internal topics
}

// count is the real count of a topic that exists, else the decided one.
func (c *counting) count(topic string) (int32, bool) {
	if t, ok := c.topics.Topic(topic); ok {
		return t.Partitions, true
	}
	n, ok := c.decided[topic]
	return n, ok
}

func (c *counting) checkSources() error {
	missing := map[string]bool{}
	for _, s := range c.t.sorted {
		for _, name := range s.SourceTopics {
			if _, ok := c.topics.Topic(name); !ok {
				missing[name] = true
			}
		}
	}
	if len(missing) > 0 {
		names := slices.Sorted(maps.Keys(missing))
		topics := make([]explain.Topic, len(names))
		for i, name := range names {
			topics[i].Name = name
		}
		return &status{statusMissingSources, "Source topics " + summarize(names) + " are missing.", topics}
	}
	return nil
}

// decideRepartition gives each repartition topic without a fixed count the largest count among the inputs of the subtopology
// that writes it. An input may itself be such a topic, so it goes round until nothing is left.
func (c *counting) decideRepartition() error {
	for _, s := range c.t.sorted {
		for _, info := range s.RepartitionSourceTopics {
			if info.Partitions != 0 {
				c.decided[info.Name] = info.Partitions
			}
		}
	}
	for open := true; open; { // every round decides a topic or ends the loop
		open = false
		progress := false
		for _, s := range c.t.sorted {
			for _, sink := range s.RepartitionSinkTopics {
				if _, done := c.decided[sink]; done {
					continue
				}
				if n, ok := c.largestInput(s); ok {
					c.decided[sink] = n
					progress = true
				} else {
					open = true
				}
			}
		}
		if open && !progress {
			return refuse(codeStreamsInvalidTopology, "Failed to compute number of partitions for all repartition topics. There may be loops in the topology that cannot be resolved.")
		}
	}
	for _, s := range c.t.sorted {
		for _, info := range s.RepartitionSourceTopics {
			if _, done := c.decided[info.Name]; !done {
				return refuse(codeStreamsInvalidTopology, "Failed to compute number of partitions for all repartition topics, because a repartition source topic is never used as a sink topic.")
			}
		}
	}
	return nil
}

func (c *counting) largestInput(s *eventlog.Subtopology) (n int32, ok bool) {
	see := func(m int32) {
		if !ok || m > n {
			n, ok = m, true
		}
	}
	for _, info := range s.RepartitionSourceTopics {
		if m, done := c.decided[info.Name]; done {
			see(m)
		}
	}
	for _, name := range s.SourceTopics {
		if t, exists := c.topics.Topic(name); exists {
			see(t.Partitions)
		}
	}
	return n, ok
}

func (c *counting) decideChangelogs() error {
	for _, s := range c.t.sorted {
		n, ok := c.tasks(s)
		if !ok {
			return refuse(codeStreamsInvalidTopology, "No source topics found for subtopology %s", s.SubtopologyID)
		}
		for _, info := range s.StateChangelogTopics {
			c.decided[info.Name] = n
		}
	}
	return nil
}

// tasks is the largest count among the topics that a subtopology reads.
func (c *counting) tasks(s *eventlog.Subtopology) (n int32, ok bool) {
	see := func(topic string) {
		if m, known := c.count(topic); known && (!ok || m > n) {
			n, ok = m, true
		}
	}
	for _, name := range s.SourceTopics {
		see(name)
	}
	for _, info := range s.RepartitionSourceTopics {
		see(info.Name)
	}
	return n, ok
}

func (c *counting) configureSub(s *eventlog.Subtopology) configuredSub {
	n, _ := c.tasks(s)
	return configuredSub{
		id: s.SubtopologyID, tasks: n,
		sources: sortedSet(s.SourceTopics), sinks: sortedSet(s.RepartitionSinkTopics),
		repartitionSources: c.withCounts(s.RepartitionSourceTopics), changelogs: c.withCounts(s.StateChangelogTopics),
	}
}

func (c *counting) withCounts(infos []eventlog.TopicInfo) []eventlog.TopicInfo {
	r := slices.Clone(infos)
	for i := range r {
		if r[i].Partitions == 0 {
			r[i].Partitions = c.decided[r[i].Name]
		}
	}
	slices.SortFunc(r, func(a, b eventlog.TopicInfo) int { return strings.Compare(a.Name, b.Name) })
	return r
}

// missing lists the internal topics that do not exist; one that exists must have the decided count.
func (c *counting) missing(subs []configuredSub) ([]CreatableTopic, error) {
	var create []CreatableTopic
	for _, s := range subs {
		for _, info := range slices.Concat(s.repartitionSources, s.changelogs) {
			if t, exists := c.topics.Topic(info.Name); exists {
				if t.Partitions != info.Partitions {
					return nil, &status{statusWrongPartitions, fmt.Sprintf("Existing topic %s has different number of partitions: expected %d, found %d", info.Name, info.Partitions, t.Partitions),
						[]explain.Topic{{Name: info.Name, Expected: info.Partitions, Found: t.Partitions}}}
				}
				continue
			}
			create = append(create, CreatableTopic{Name: info.Name, Partitions: info.Partitions, ReplicationFactor: replicationOrDefault(info.ReplicationFactor), Configs: info.TopicConfigs})
		}
	}
	slices.SortFunc(create, func(a, b CreatableTopic) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(create, func(a, b CreatableTopic) bool { return a.Name == b.Name }), nil
}

// replicationOrDefault: -1 is CreateTopics' word for the cluster's default.
func replicationOrDefault(n int16) int16 {
	if n == 0 {
		return -1
	}
	return n
}

func sortedSet(names []string) []string {
	r := slices.Clone(names)
	slices.Sort(r)
	return slices.Compact(r)
}

// summarize joins the first few names; they come sorted.
func summarize(names []string) string {
	if len(names) <= topicNamesInStatusMax {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:topicNamesInStatusMax], ", ") + " and " + strconv.Itoa(len(names)-topicNamesInStatusMax) + " additional topics"
}
