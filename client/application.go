package client

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"streamkeeper/client/topology"
)

// Application puts an application together from its nodes, and makes of them what a member sends: the topics of its
// subtopologies, and the topology description. It cuts and numbers subtopologies, and names internal topics, as Kafka Streams does
// (InternalTopologyBuilder, TopologyDescriptionConverter), so that a Go program and a Java program of the same nodes make the
// same application. Mistakes are told by Build. An Application belongs to one goroutine.
type Application struct {
	id          string
	nodes       map[string]*node
	stores      map[string]bool
	changelogs  map[string]InternalTopic // by store
	repartition map[string]InternalTopic // by undecorated name
	copartition [][]string
	globals     []globalStore
	errs        []error
}

type node struct {
	topology.Node
	before []string
	global bool
	root   *node // of the set of nodes that belong together
}

type globalStore struct{ source, processor string }

// NewApplication begins an application; id is its application.id, which is the group.
func NewApplication(id string) *Application {
	return &Application{id: id, nodes: map[string]*node{}, stores: map[string]bool{}, changelogs: map[string]InternalTopic{}, repartition: map[string]InternalTopic{}}
}

func (a *Application) wrong(format string, args ...any) {
	a.errs = append(a.errs, fmt.Errorf(format, args...))
}

func (a *Application) add(n node) {
	switch {
	case n.Name == "":
		a.wrong("a %v has no name", n.Type)
	case a.nodes[n.Name] != nil:
		a.wrong("two nodes are called %q", n.Name)
	case n.Type != topology.Source && len(n.before) == 0:
		a.wrong("%v %q has no predecessor", n.Type, n.Name)
	default:
		a.nodes[n.Name] = &n
	}
}

// AddSource adds a node that reads topics. (Kafka 4.4's coordinator takes no patterns.)
func (a *Application) AddSource(name string, topics ...string) {
	if len(topics) == 0 {
		a.wrong("source %q reads no topic", name)
	}
	a.add(node{Node: topology.Node{Name: name, Type: topology.Source, Topics: topics}})
}

// AddProcessor adds a node behind others.
func (a *Application) AddProcessor(name string, predecessors ...string) {
	a.add(node{Node: topology.Node{Name: name, Type: topology.Processor}, before: predecessors})
}

// AddSink adds a node that writes to a topic; an empty topic says that it is computed for each record.
func (a *Application) AddSink(name, topic string, predecessors ...string) {
	n := node{Node: topology.Node{Name: name, Type: topology.Sink}, before: predecessors}
	if topic != "" {
		n.SinkTopic = &topic
	}
	a.add(n)
}

// AddStore gives processors a state store, which makes them belong together. changelog is the topic that it is kept in, nil if in none; without
// a name of its own it is called <id>-<store>-changelog.
func (a *Application) AddStore(name string, changelog *InternalTopic, processors ...string) {
	if a.stores[name] {
		a.wrong("two stores are called %q", name)
		return
	}
	a.stores[name] = true
	if len(processors) == 0 {
		a.wrong("store %q is used by no processor", name)
	}
	for i, p := range processors {
		n := a.nodes[p]
		if n == nil || n.Type != topology.Processor || n.global {
			a.wrong("store %q is used by %q, which is no processor added before", name, p)
			return
		}
		n.Stores = append(n.Stores, name)
		n.unite(a.nodes[processors[max(i-1, 0)]])
	}
	if changelog != nil {
		c := *changelog
		if c.Name == "" {
			c.Name = a.id + "-" + name + "-changelog"
		}
		if c.Partitions != 0 {
			a.wrong("changelog %q has %d partitions, and must have as many as its tasks: leave that out", c.Name, c.Partitions)
		}
		a.changelogs[name] = c
	}
}

// AddRepartitionTopic says that a topic which sinks write and sources read is internal: the coordinator creates it, with <id>- before
// its name. Nodes call it by the name without that.
func (a *Application) AddRepartitionTopic(t InternalTopic) {
	if _, ok := a.repartition[t.Name]; ok {
		a.wrong("two repartition topics are called %q", t.Name)
	}
	a.repartition[t.Name] = t
}

// AddGlobalStore adds a store that every instance fills from a whole topic, by a source and a processor of its own. It has no tasks.
func (a *Application) AddGlobalStore(store, topic, source, processor string) {
	if a.stores[store] {
		a.wrong("two stores are called %q", store)
	}
	a.stores[store] = true
	a.add(node{Node: topology.Node{Name: source, Type: topology.Source, Topics: []string{topic}}, global: true})
	a.add(node{Node: topology.Node{Name: processor, Type: topology.Processor, Stores: []string{store}}, before: []string{source}, global: true})
	a.globals = append(a.globals, globalStore{source, processor})
}

// Copartition says that topics, which sources of one subtopology read, must have the same number of partitions.
func (a *Application) Copartition(topics ...string) {
	a.copartition = append(a.copartition, topics)
}

// unite makes the sets of two nodes one.
func (n *node) unite(o *node) {
	if x, y := n.set(), o.set(); x != y {
		x.root = y
	}
}

func (n *node) set() *node {
	for n.root != nil {
		if n.root.root != nil {
			n.root = n.root.root
		}
		n = n.root
	}
	return n
}

// decorate gives internal topics their full names.
func (a *Application) decorate(topic string) string {
	if _, internal := a.repartition[topic]; internal {
		return a.id + "-" + topic
	}
	return topic
}

// Build makes the subtopologies and the description of the nodes, for MemberConfig. The error joins everything that is wrong with them.
func (a *Application) Build() ([]Subtopology, *topology.Description, error) {
	if errs := append(slices.Clone(a.errs), a.connect()...); len(errs) > 0 {
		return nil, nil, fmt.Errorf("application %q: %w", a.id, errors.Join(errs...))
	}
	ids := a.numbers()
	byID := map[string]*Subtopology{}
	pictures := map[string]*topology.Subtopology{}
	d := &topology.Description{}
	var order []string
	for _, n := range a.sorted() {
		if n.global {
			continue
		}
		id := ids[n.set()]
		s, p := byID[id], pictures[id]
		if s == nil {
			s, p = &Subtopology{ID: id}, &topology.Subtopology{ID: id}
			byID[id], pictures[id] = s, p
			order = append(order, id)
		}
		p.Nodes = append(p.Nodes, a.picture(n))
		a.topics(s, n)
	}
	for _, topics := range a.copartition {
		if err := a.copartitioned(byID, topics); err != nil {
			return nil, nil, fmt.Errorf("application %q: %w", a.id, err)
		}
	}
	slices.SortFunc(order, func(x, y string) int { return number(x) - number(y) })
	var subtopologies []Subtopology
	for _, id := range order {
		if s := byID[id]; len(s.SourceTopics)+len(s.RepartitionSourceTopics) == 0 {
			return nil, nil, fmt.Errorf("application %q: no source leads to node %q", a.id, pictures[id].Nodes[0].Name)
		}
		subtopologies = append(subtopologies, *byID[id])
		d.Subtopologies = append(d.Subtopologies, *pictures[id])
	}
	slices.SortStableFunc(a.globals, func(x, y globalStore) int {
		return number(ids[a.nodes[x.source].set()]) - number(ids[a.nodes[y.source].set()])
	})
	for _, g := range a.globals {
		d.GlobalStores = append(d.GlobalStores, topology.GlobalStore{Source: a.picture(a.nodes[g.source]), Processor: a.picture(a.nodes[g.processor])})
	}
	d.Link()
	return subtopologies, d, nil
}

// number reads an id that we wrote.
func number(id string) int {
	n, _ := strconv.Atoi(id)
	return n
}

// connect leads arrows from the predecessors that nodes name, and unites what they connect.
func (a *Application) connect() (errs []error) {
	for _, n := range a.sorted() {
		n.Successors = nil // of an earlier Build
	}
	for _, n := range a.sorted() {
		for _, name := range n.before {
			p := a.nodes[name]
			switch {
			case p == nil:
				errs = append(errs, fmt.Errorf("node %q comes after %q, which does not exist", n.Name, name))
			case p.Type == topology.Sink:
				errs = append(errs, fmt.Errorf("node %q comes after the sink %q", n.Name, name))
			case p.global && !n.global:
				errs = append(errs, fmt.Errorf("node %q comes after %q, which belongs to a global store", n.Name, name))
			default:
				p.Successors = append(p.Successors, n.Name)
				n.unite(p)
			}
		}
	}
	return errs
}

// sorted are the nodes by name.
func (a *Application) sorted() []*node {
	out := make([]*node, 0, len(a.nodes))
	for _, name := range slices.SortedFunc(maps.Keys(a.nodes), topology.CompareNames) {
		out = append(out, a.nodes[name])
	}
	return out
}

// numbers gives each set of nodes its id: in the order of the names of their sources, then of the other nodes. Global stores take part.
func (a *Application) numbers() map[*node]string {
	ids := map[*node]string{}
	visit := func(n *node) {
		if _, ok := ids[n.set()]; !ok {
			ids[n.set()] = strconv.Itoa(len(ids))
		}
	}
	for _, n := range a.sorted() {
		if n.Type == topology.Source {
			visit(n)
		}
	}
	for _, n := range a.sorted() {
		visit(n)
	}
	return ids
}

// picture is a node as it is described, with internal topics under their full names.
func (a *Application) picture(n *node) topology.Node {
	out := n.Node
	out.Topics, out.Stores, out.Successors = nil, slices.Clone(n.Stores), slices.Clone(n.Successors)
	for _, t := range n.Topics {
		out.Topics = append(out.Topics, a.decorate(t))
	}
	if n.SinkTopic != nil {
		topic := a.decorate(*n.SinkTopic)
		out.SinkTopic = &topic
	}
	return out
}

// topics adds a node's topics to those of its subtopology.
func (a *Application) topics(s *Subtopology, n *node) {
	internal := func(list []InternalTopic, t InternalTopic) []InternalTopic {
		if slices.ContainsFunc(list, func(o InternalTopic) bool { return o.Name == t.Name }) {
			return list
		}
		return append(list, t)
	}
	for _, topic := range n.Topics {
		if t, ok := a.repartition[topic]; ok {
			t.Name = a.decorate(topic)
			s.RepartitionSourceTopics = internal(s.RepartitionSourceTopics, t)
		} else if !slices.Contains(s.SourceTopics, topic) {
			s.SourceTopics = append(s.SourceTopics, topic)
		}
	}
	if n.SinkTopic != nil {
		if _, ok := a.repartition[*n.SinkTopic]; ok {
			if name := a.decorate(*n.SinkTopic); !slices.Contains(s.RepartitionSinkTopics, name) {
				s.RepartitionSinkTopics = append(s.RepartitionSinkTopics, name)
			}
		}
	}
	for _, store := range n.Stores {
		if c, ok := a.changelogs[store]; ok {
			s.ChangelogTopics = internal(s.ChangelogTopics, c)
		}
	}
}

// copartitioned adds a copartition group to the subtopology that reads its topics.
func (a *Application) copartitioned(byID map[string]*Subtopology, topics []string) error {
	for _, s := range byID {
		var group []string
		for _, t := range topics {
			name := a.decorate(t)
			if slices.Contains(s.SourceTopics, name) || slices.ContainsFunc(s.RepartitionSourceTopics, func(r InternalTopic) bool { return r.Name == name }) {
				group = append(group, name)
			}
		}
		if len(group) == len(topics) && len(topics) > 0 {
			s.CopartitionGroups = append(s.CopartitionGroups, group)
			return nil
		}
	}
	return fmt.Errorf("no subtopology reads all of the copartitioned topics %q", topics)
}
