package eventlog

// Topology, type 23, version 0. Lists keep the order of the request that brought them.
//
//	Epoch          int32
//	Subtopologies  array of
//	  SubtopologyId            string
//	  SourceTopics             []string
//	  SourceTopicRegex         []string
//	  StateChangelogTopics     []TopicInfo
//	  RepartitionSinkTopics    []string
//	  RepartitionSourceTopics  []TopicInfo
//	  CopartitionGroups        []{SourceTopics, SourceTopicRegex, RepartitionSourceTopics []int16}
//
//	TopicInfo: Name string, Partitions int32, ReplicationFactor int16, TopicConfigs [](key, value string)

// The smallest elements: empty strings and lists take a byte each, so does the tag section.
const (
	subtopologyBytesMin = 8
	topicInfoBytesMin   = 9
	copartitionBytesMin = 4
)

func decodeTopology(r *reader) *Topology {
	v := &Topology{Epoch: r.Int32()}
	v.Subtopologies = list(r, subtopologyBytesMin, func(r *reader) Subtopology {
		s := Subtopology{SubtopologyID: r.str(true)}
		s.SourceTopics = list(r, 1, strings1)
		s.SourceTopicRegex = list(r, 1, strings1)
		s.StateChangelogTopics = list(r, topicInfoBytesMin, topicInfo)
		s.RepartitionSinkTopics = list(r, 1, strings1)
		s.RepartitionSourceTopics = list(r, topicInfoBytesMin, topicInfo)
		s.CopartitionGroups = list(r, copartitionBytesMin, func(r *reader) CopartitionGroup {
			g := CopartitionGroup{SourceTopics: list(r, 2, int16s), SourceTopicRegex: list(r, 2, int16s), RepartitionSourceTopics: list(r, 2, int16s)}
			r.tags(nil)
			return g
		})
		r.tags(nil)
		return s
	})
	r.tags(nil)
	return v
}

func topicInfo(r *reader) TopicInfo {
	t := TopicInfo{Name: r.str(true)}
	t.Partitions = r.Int32()
	t.ReplicationFactor = r.Int16()
	t.TopicConfigs = list(r, keyValueBytesMin, keyValue)
	r.tags(nil)
	return t
}

func (w *writer) topology(v *Topology) {
	w.int16(0)
	w.int32(v.Epoch)
	w.count(len(v.Subtopologies))
	for i := range v.Subtopologies {
		s := &v.Subtopologies[i]
		w.str(s.SubtopologyID, true)
		w.strings(s.SourceTopics)
		w.strings(s.SourceTopicRegex)
		writeList(w, s.StateChangelogTopics, (*writer).topicInfo)
		w.strings(s.RepartitionSinkTopics)
		writeList(w, s.RepartitionSourceTopics, (*writer).topicInfo)
		writeList(w, s.CopartitionGroups, func(w *writer, g CopartitionGroup) {
			w.int16s(g.SourceTopics)
			w.int16s(g.SourceTopicRegex)
			w.int16s(g.RepartitionSourceTopics)
			w.noTags()
		})
		w.noTags()
	}
	w.noTags()
}

func (w *writer) topicInfo(t TopicInfo) {
	w.str(t.Name, true)
	w.int32(t.Partitions)
	w.int16(t.ReplicationFactor)
	w.keyValues(t.TopicConfigs)
	w.noTags()
}
