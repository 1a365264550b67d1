package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"streamkeeper/internal/kafkatest"
)

// perSecond is how many records go into each application.
const perSecond = 20

// stage is one JVM with an instance of each application.
type stage struct {
	number int
	name   string
	host   *kafkatest.AppHost
	told   int // how much of its log has been judged
	// expired says that a client of it was told that its member had been removed.
	expired bool
}

// application is a real Kafka Streams application: one instance on each stage, state with standbys, under load.
type application struct {
	group     string
	topology  string
	tasks     int // active ones
	stateful  int // those of them that have a standby
	threads   int // of each instance
	load      *kafkatest.Load
	sink      *kafkatest.Sink
	options   []kafkatest.AppOptions
	instances []*kafkatest.App
}

// startApps starts applications whose instances are on so many stages.
func (w *world) startApps(applications, stages int) {
	for i := range stages {
		w.stages = append(w.stages, &stage{number: i, name: string(rune('a' + i))})
	}
	for i := range applications {
		a := &application{group: fmt.Sprintf("app-%d", i), topology: "kept2", tasks: 2 * inPartitions, stateful: inPartitions, threads: 1}
		if i%2 == 1 {
			a.topology, a.tasks, a.threads = "kept", inPartitions, 2
		}
		in, out := a.group+"-in", a.group+"-out"
		kafkatest.CreateTopics(w.t, w.cluster.Bootstrap(), inPartitions, in, out)
		a.load = kafkatest.NewLoad(w.t, w.cluster.Bootstrap(), in)
		a.sink = kafkatest.Watch(w.t, w.cluster.Bootstrap(), out)
		for n := range max(2, stages) { // a standby is another process's
			a.options = append(a.options, kafkatest.AppOptions{
				Bootstrap: strings.Join(w.addresses(), ","), Group: a.group, Name: string(rune('a' + n)), Topology: a.topology,
				State: w.t.TempDir(), Threads: a.threads, Uncaught: "replace",
				// Shorter than the session: whoever is led through a replica that hangs gives up before it is expired (docs/operations.md).
				Config: map[string]string{"request.timeout.ms": "3000"},
			})
		}
		a.instances = make([]*kafkatest.App, len(a.options))
		w.apps = append(w.apps, a)
	}
	for _, s := range w.stages {
		w.play(s)
	}
	for _, a := range w.apps {
		a.load.Run(perSecond)
	}
}

// play starts a stage's JVM and the instances on it, with the state that they had.
func (w *world) play(s *stage) {
	s.told = 0
	if w.net == nil {
		s.host = kafkatest.StartAppHost(w.t, kafkatest.V44)
	} else {
		s.host = kafkatest.StartAppHostIn(w.t, w.net.enter(w.net.stage(s.number)), kafkatest.V44)
	}
	for _, a := range w.apps {
		for n, o := range a.options {
			if w.stages[n%len(w.stages)] == s {
				a.instances[n] = s.host.Start(w.t, o)
			}
		}
	}
}

// troubled says what does not work yet, where so many records went in before.
func (a *application) troubled(sent int) string {
	active, standby := map[string]string{}, map[string]string{}
	for _, i := range a.instances {
		if s := i.State(); s != "RUNNING" {
			return fmt.Sprintf("%s/%s is in state %s, its uncaught exceptions: %q", a.group, i.Name(), s, i.Uncaught())
		}
		for _, task := range i.Tasks() {
			if other, ok := active[task]; ok {
				return fmt.Sprintf("%s: %s and %s work on task %s", a.group, other, i.Name(), task)
			}
			active[task] = i.Name()
		}
		for _, task := range i.Standbys() {
			standby[task] = i.Name()
		}
	}
	if len(active) != a.tasks || len(standby) != a.stateful {
		return fmt.Sprintf("%s: %d tasks are worked on of %d, %d of %d have a standby", a.group, len(active), a.tasks, len(standby), a.stateful)
	}
	for task, by := range standby {
		if active[task] == by {
			return fmt.Sprintf("%s: %s has task %s and is its standby", a.group, by, task)
		}
	}
	if missing := a.sink.Missing(sent); len(missing) > 0 {
		return fmt.Sprintf("%s: of %d records %d have not come out: %v …", a.group, sent, len(missing), missing[:min(len(missing), 10)])
	}
	return ""
}

// appsTroubled looks at all applications. sent is what Sent was when the looking began.
func (w *world) appsTroubled(sent []int) string {
	for _, s := range w.stages {
		if !s.host.Running() {
			w.t.Fatalf("the JVM %s of the applications has ended:\n%s", s.name, s.host.Output())
		}
	}
	for i, a := range w.apps {
		if why := a.troubled(sent[i]); why != "" {
			return why
		}
	}
	return ""
}

func (w *world) sent() []int {
	var all []int
	for _, a := range w.apps {
		all = append(all, a.load.Sent())
	}
	return all
}

// finishApps ends the load, waits until everything has come out and is committed, and closes the instances.
func (w *world) finishApps() {
	for _, a := range w.apps {
		sent := a.load.Halt()
		again := a.sink.WaitAll(sent, calmMax)
		kafkatest.WaitCommitted(w.t, strings.Join(w.addresses(), ","), a.group, a.group+"-in", calmMax)
		w.t.Logf("%s: %d records in, all came out, %d of them more than once", a.group, sent, again)
		for _, i := range a.instances {
			i.Stop()
		}
	}
}

// ofApps is a fault of the applications themselves. The drawn number says on which stage.
func ofApps(name string, begin func(w *world, s *stage) (mend func())) fault {
	return fault{name: name, netless: true, apps: true, begin: func(w *world, _ int, draw *rand.Rand) (func(), string) {
		s := w.stages[draw.IntN(len(w.stages))]
		return begin(w, s), "JVM " + s.name
	}}
}

var appFaults = []fault{
	ofApps("applications paused", func(w *world, s *stage) func() {
		s.host.Pause()
		return s.host.Resume
	}),
	ofApps("applications killed", func(w *world, s *stage) func() {
		w.judgeAppLog(s)
		s.host.Kill()
		return func() { w.play(s) }
	}),
	// It goes on reading and writing by the others; its groups' coordinator may be the one that it does not hear.
	ofAppsNet("applications cut from one replica", func(w *world, i int, draw *rand.Rand) (func(), string) {
		target, way := draw.IntN(replicas), drawWay(draw)
		w.net.apply(i, cutFromHost(w.net.address(target), way)...)
		return func() { w.net.heal(i) }, fmt.Sprintf("replica %d, %v", target, way)
	}),
}

// ofAppsNet is a fault of the network of a stage, whose namespace begin is told.
func ofAppsNet(name string, begin func(w *world, namespace int, draw *rand.Rand) (mend func(), about string)) fault {
	return fault{name: name, apps: true, begin: func(w *world, _ int, draw *rand.Rand) (func(), string) {
		s := w.stages[draw.IntN(len(w.stages))]
		mend, about := begin(w, w.net.stage(s.number), draw)
		return mend, "JVM " + s.name + ", " + about
	}}
}

// keepLog has the log topic not be compacted for as long as any run: what compaction takes can't be judged.
func (w *world) keepLog() {
	ctx, cancel := context.WithTimeout(context.Background(), adminMax)
	defer cancel()
	lag := fmt.Sprint((24 * time.Hour).Milliseconds())
	resp, err := kafkatest.Admin(w.t, w.cluster.Bootstrap()).AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "min.compaction.lag.ms", Value: &lag}}, logTopic)
	if err == nil && len(resp) > 0 {
		err = resp[0].Err
	}
	if err != nil {
		w.t.Fatalf("set min.compaction.lag.ms of %s: %v", logTopic, err)
	}
}

// groups are those of members and of applications.
func (w *world) groups() []string {
	all := groupsOf(w.members)
	for _, a := range w.apps {
		all = append(all, a.group)
	}
	slices.Sort(all)
	return all
}
