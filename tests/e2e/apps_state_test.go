package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/client"
	"streamkeeper/internal/kafkatest"
)

// global: every instance has the whole of a global table, which has no tasks.
func global(t *testing.T, c *cast) {
	p := c.stage(t, partitions, "-names")
	names := p.group + "-names"
	cl := newClient(t, p.direct, p.out)
	var records []*kgo.Record
	for i := range words {
		records = append(records, &kgo.Record{Topic: names, Key: fmt.Appendf(nil, "word%d", i), Value: fmt.Appendf(nil, "name%d", i)})
	}
	if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	o := kafkatest.AppOptions{Topology: "global", Args: []string{"in2=" + names}}
	a, b := p.start("a", o), p.start("b", o)
	waitSpread(t, []int{partitions / 2, partitions / 2}, a, b)
	load := kafkatest.NewWords(t, p.direct, p.in, words)
	load.Send(4 * words)
	kafkatest.Eventually(t, outcome, func() error {
		got := map[string]uint64{}
		for _, s := range p.sink.Seen() {
			word, name, _ := strings.Cut(string(s.Value), "+")
			if strings.TrimPrefix(word, "word") != strings.TrimPrefix(name, "name") {
				t.Fatalf("%s came out: the table has another name, or none for the instance %s", s.Value, s.By)
			}
			got[word]++
		}
		if !maps.Equal(got, load.Counts()) {
			return fmt.Errorf("words that came out: %v", got)
		}
		return nil
	})
	if by := p.sink.WritersSince(0); len(by) != 2 {
		t.Errorf("written by %v", by)
	}
	if g := describe(t, p.streams, p.group); len(g.Subtopologies) != 1 || !slices.Equal(g.Subtopologies[0].SourceTopics, []string{p.in}) {
		t.Errorf("subtopologies %+v", g.Subtopologies)
	}
	p.oneOwner(nil)
	p.calm(a, b)
}

func describe(t *testing.T, bootstrap, group string) *client.GroupDescription {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	d := client.NewAdmin(cl).DescribeStreamsGroups(t.Context(), []string{group}, client.DescribeOptions{})[0]
	if d.Err != nil {
		t.Fatalf("describe %s: %v", group, d.Err)
	}
	return d.Description
}

// wide: an application of many subtopologies, two instances with two threads each. All threads work, and all is counted once.
func wide(t *testing.T, c *cast) {
	const parts = 2
	p := c.stage(t, parts)
	subtopologies := 12
	if *long {
		subtopologies = 100
	}
	load := kafkatest.NewWords(t, p.direct, p.in, 10*subtopologies)
	load.Send(40 * subtopologies)
	o := kafkatest.AppOptions{Topology: "wide", Threads: 2, Args: []string{fmt.Sprintf("parts=%d", subtopologies)}}
	a := p.start("a", o)
	a.WaitTasks(parts * subtopologies)
	b := p.start("b", o)
	waitSpread(t, []int{parts * subtopologies / 2, parts * subtopologies / 2}, a, b)
	load.Send(40 * subtopologies)
	p.sink.WaitCounts(load.Counts(), outcome)
	threads := map[string]bool{}
	for _, s := range p.sink.Seen() {
		threads[s.Thread] = true
	}
	if len(threads) != 4 {
		t.Errorf("the threads that wrote are %v", slices.Sorted(maps.Keys(threads)))
	}
	g := describe(t, p.streams, p.group)
	perProcess := map[string][]int{}
	for _, m := range g.Members {
		perProcess[m.ProcessID] = append(perProcess[m.ProcessID], len(m.Assignment.Active))
	}
	for process, tasks := range perProcess {
		if len(tasks) != 2 || tasks[0] != tasks[1] {
			t.Errorf("the threads of process %s have %v tasks, want two with the same number", process, tasks)
		}
	}
	if len(perProcess) != 2 || len(g.Subtopologies) != subtopologies {
		t.Errorf("%d processes, %d subtopologies", len(perProcess), len(g.Subtopologies))
	}
	b.Stop()
	a.WaitTasks(parts * subtopologies)
	load.Send(10 * subtopologies)
	p.sink.WaitCounts(load.Counts(), outcome)
	p.oneOwner(nil)
	p.calm(a, b)
}

// endpoints: each instance knows where each key is, from the coordinator, and a query there finds its count.
func endpoints(t *testing.T, c *cast) {
	p := c.stage(t, partitions)
	load := kafkatest.NewWords(t, p.direct, p.in, words)
	load.Send(4 * words)
	at := func(name string, port int) kafkatest.AppOptions {
		return kafkatest.AppOptions{Topology: "counted", Config: map[string]string{"application.server": fmt.Sprintf("%s.example.org:%d", name, port)}}
	}
	a, b := p.start("a", at("a", 7001)), p.start("b", at("b", 7002))
	waitSpread(t, []int{partitions, partitions}, a, b)
	p.sink.WaitCounts(load.Counts(), outcome)
	instances := map[string]*kafkatest.App{"a.example.org:7001": a, "b.example.org:7002": b}
	// knows checks what an instance has been told: each partition of both topics at exactly one of the endpoints.
	knows := func(who *kafkatest.App, want ...string) error {
		all := who.Events("ENDPOINTS")
		if len(all) == 0 {
			return fmt.Errorf("%s knows no endpoints", who.Name())
		}
		var hosts, active []string
		for _, entry := range strings.Fields(all[len(all)-1]) {
			host, has, _ := strings.Cut(entry, "=")
			mine, _, _ := strings.Cut(has, "|")
			hosts = append(hosts, host)
			active = append(active, strings.Split(mine, ",")...)
		}
		slices.Sort(active)
		var topics []string
		for i := range partitions {
			topics = append(topics, fmt.Sprintf("%s-%d", p.in, i), fmt.Sprintf("%s-by-value-repartition-%d", p.group, i))
		}
		slices.Sort(topics)
		if !slices.Equal(hosts, want) || !slices.Equal(active, topics) {
			return fmt.Errorf("%s knows %s", who.Name(), all[len(all)-1])
		}
		return nil
	}
	for _, who := range instances {
		kafkatest.Eventually(t, outcome, func() error { return knows(who, "a.example.org:7001", "b.example.org:7002") })
	}
	where := map[string]int{}
	for i := range 10 {
		word := fmt.Sprintf("word%d", i)
		host, _ := a.Get("counts", word)
		other, _ := b.Get("counts", word)
		if host != other || instances[host] == nil {
			t.Fatalf("%s is at %q, says a, and at %q, says b", word, host, other)
		}
		if _, value := instances[host].Get("counts", word); value != "4" {
			t.Errorf("the count of %s at %s is %s, want 4", word, host, value)
		}
		where[host]++
	}
	if len(where) != 2 {
		t.Errorf("ten words are at %v", where)
	}
	b.Stop()
	a.WaitTasks(2 * partitions)
	kafkatest.Eventually(t, outcome, func() error { return knows(a, "a.example.org:7001") })
	p.calm(a, b)
}

// static: an instance with a group.instance.id that comes back within its session has its tasks again, and nobody else notices.
func static(t *testing.T, c *cast) {
	p := c.stage(t, partitions)
	configureGroup(t, p.streams, p.group, "streams.session.timeout.ms", "45000") // also a slow machine starts it again within that
	load := kafkatest.NewWords(t, p.direct, p.in, words)
	o := func(name string) kafkatest.AppOptions {
		return kafkatest.AppOptions{Topology: "counted", Threads: 2, Config: map[string]string{"group.instance.id": name}}
	}
	a, b := p.start("a", o("a")), p.start("b", o("b"))
	waitSpread(t, []int{partitions, partitions}, a, b)
	load.Send(4 * words)
	p.sink.WaitCounts(load.Counts(), outcome)
	before := describe(t, p.streams, p.group)
	mine, others, told := b.Tasks(), a.Tasks(), len(a.Events("TASKS"))
	b.Stop()
	kafkatest.Eventually(t, outcome, func() error { // each thread is a static member of its own
		away := 0
		for _, m := range describe(t, p.streams, p.group).Members {
			if m.Epoch == -2 {
				away++
			}
		}
		if away != 2 {
			return fmt.Errorf("%d members are away for a while", away)
		}
		return nil
	})
	load.Send(words)
	b = p.host.Start(t, b.Options())
	b.WaitTasks(partitions)
	if now := b.Tasks(); !slices.Equal(now, mine) {
		t.Errorf("it has the tasks %v, before the restart %v", now, mine)
	}
	p.sink.WaitCounts(load.Counts(), outcome)
	after := describe(t, p.streams, p.group)
	if after.Epoch != before.Epoch || after.AssignmentEpoch != before.AssignmentEpoch {
		t.Errorf("the restart took the group from epoch %d (assignment %d) to %d (%d)", before.Epoch, before.AssignmentEpoch, after.Epoch, after.AssignmentEpoch)
	}
	if a.State() != "RUNNING" || !slices.Equal(a.Tasks(), others) || len(a.Events("TASKS")) != told {
		t.Errorf("the other instance had the tasks %v and then %q", others, a.Events("TASKS")[told:])
	}
	if ids := instanceIDs(after); !slices.Equal(ids, []string{"a-1", "a-2", "b-1", "b-2"}) || !slices.Equal(ids, instanceIDs(before)) {
		t.Errorf("static members %v, before %v", ids, instanceIDs(before))
	}
	// One that does not come back within its session is gone.
	configureGroup(t, p.streams, p.group, "streams.session.timeout.ms", "6000")
	time.Sleep(3 * time.Second) // it acts at each member's next heartbeat, of which nobody tells; they come every second
	stopped := time.Now()
	b.Stop()
	a.WaitTasks(2 * partitions)
	// The session counts from its last heartbeat, which is up to 1 s old, and older where the machine stood still.
	if took := time.Since(stopped); took < 2*time.Second {
		t.Errorf("the tasks of the static instance went to the other one after %s, its session is 6 s", took)
	}
	p.oneOwner(nil)
	p.calm(a, b)
}

func instanceIDs(g *client.GroupDescription) []string {
	var ids []string
	for _, m := range g.Members {
		if m.InstanceID != nil {
			ids = append(ids, *m.InstanceID)
		}
	}
	slices.Sort(ids)
	return ids
}

// configureGroup sets a configuration of a group until the test ends: it would outlive the group.
func configureGroup(t *testing.T, bootstrap, group, name, value string) {
	t.Helper()
	alterGroup(t, bootstrap, group, name, &value)
	t.Cleanup(func() { alterGroup(t, bootstrap, group, name, nil) })
}

// alterGroup sets a configuration of a group, or removes it if there is no value.
func alterGroup(t *testing.T, bootstrap, group, name string, value *string) {
	t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value, c.Op = name, value, kmsg.IncrementalAlterConfigOpSet
	if value == nil {
		c.Op = kmsg.IncrementalAlterConfigOpDelete
	}
	r.Configs = append(r.Configs, c)
	req.Resources = append(req.Resources, r)
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), outcome) // the test's own may be over
	defer cancel()
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.Resources[0]; got.ErrorCode != 0 {
		t.Fatalf("alter %s of group %s: %v %v", name, group, kerr.ErrorForCode(got.ErrorCode), got.ErrorMessage)
	}
}

// standbys: an instance that dies is replaced by one that has its state already, and nothing is restored.
func standbys(t *testing.T, c *cast) {
	p := c.stage(t, partitions)
	configureGroup(t, p.streams, p.group, "streams.num.standby.replicas", "1")
	load := kafkatest.NewWords(t, p.direct, p.in, words)
	o := kafkatest.AppOptions{Topology: "counted"}
	a := p.start("a", o)
	a.WaitTasks(2 * partitions)
	b := p.startAlone("b", o)
	stateful := func(tasks []string) (some []string) {
		for _, task := range tasks {
			if strings.HasPrefix(task, "1_") {
				some = append(some, task)
			}
		}
		return some
	}
	kafkatest.Eventually(t, outcome, func() error { // each has the state of the other
		if !slices.Equal(stateful(a.Tasks()), b.Standbys()) || !slices.Equal(stateful(b.Tasks()), a.Standbys()) || len(a.Standbys())+len(b.Standbys()) != partitions {
			return fmt.Errorf("a has %v and in standby %v, b has %v and in standby %v", a.Tasks(), a.Standbys(), b.Tasks(), b.Standbys())
		}
		return nil
	})
	if len(b.Standbys()) == 0 || len(a.Standbys()) == 0 {
		t.Fatalf("b has the standbys %v, a %v", b.Standbys(), a.Standbys())
	}
	load.Send(10 * words)
	p.sink.WaitCounts(load.Counts(), outcome)
	kafkatest.WaitCommitted(t, p.streams, p.group, p.in, outcome)
	kafkatest.WaitCommitted(t, p.streams, p.group, p.group+"-by-value-repartition", outcome)
	kafkatest.Eventually(t, outcome, func() error {
		if lag := a.Lag(); lag > 0 {
			return fmt.Errorf("a is %d records behind", lag)
		}
		return nil
	})
	takes, restored, events := a.Standbys(), a.Restored(), len(a.Events("RESTORED"))
	b.Kill()
	a.WaitTasks(2 * partitions)
	load.Send(2 * words)
	p.sink.WaitCounts(load.Counts(), outcome)
	if n, of := len(a.Events("RESTORED"))-events, a.Restored()-restored; n != len(takes) || of != 0 {
		t.Errorf("%d stores of the tasks %v were restored with %d records, all of which were there in standby", n, takes, of)
	}
	p.oneOwner(nil)
	p.calm(a, b)
}
