package e2e

import (
	"context"
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/client"
	"streamkeeper/internal/kafkatest"
)

// long makes stories as long as nobody wants to wait for at every change: go test ./tests/e2e -run Apps -args -long
var long = flag.Bool("long", false, "100 subtopologies instead of 12, an instance that crashes ten times instead of two, replicas restarted twice, paused for a minute, and ended while they are paused")

func TestAppsKafkaItself(t *testing.T)   { apps(t, itself, kafkatest.V43) }
func TestAppsServeBefore39(t *testing.T) { apps(t, before39, kafkatest.V42) }
func TestAppsServeBefore44(t *testing.T) { apps(t, before44, kafkatest.V42, kafkatest.V43) }

// apps plays the stories of real applications, several at a time, since they mostly wait. Each has topics and a group of its own, named
// like the story; most instances live in one JVM.
func apps(t *testing.T, w world, older ...string) {
	c := &cast{place: w.build(t), host: kafkatest.StartAppHost(t, kafkatest.V44)}
	t.Cleanup(func() { c.deleteGroups(t) })
	stories := map[string]func(*testing.T, *cast){
		"scaled": scaled, "crashing": crashing, "slow": slow, "paused": paused, "clinging": clinging,
		"global": global, "wide": wide, "endpoints": endpoints, "static": static, "standbys": standbys,
		"counting": func(t *testing.T, c *cast) { counting(t, c.place) },
		"joining":  func(t *testing.T, c *cast) { joining(t, c.place) },
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, c)
		})
	}
	for _, v := range older {
		t.Run("client-"+v, func(t *testing.T) {
			t.Parallel()
			olderClient(t, c, v)
		})
	}
}

// cast is what the stories of a world share.
type cast struct {
	*place
	host *kafkatest.AppHost
}

// deleteGroups leaves a shared cluster as other tests expect it: without streams groups. What is behind streamkeeper is in a log of its own.
func (c *cast) deleteGroups(t *testing.T) {
	if c.keeper != nil {
		return
	}
	ctx := context.Background() // the test's own is over
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.streams))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := client.NewAdmin(cl)
	kafkatest.Eventually(t, outcome, func() error { // instances are still being closed, and those that were killed expire
		groups, err := adm.ListStreamsGroups(ctx)
		for _, g := range groups {
			err = errors.Join(err, adm.DeleteStreamsGroups(ctx, g.Group)[0].Err)
		}
		return err
	})
}

// play is one story: an application with its topics.
type play struct {
	*cast
	t              *testing.T
	group, in, out string
	sink           *kafkatest.Sink
}

// stage makes the topics of a story, named like its test, and watches what comes out.
func (c *cast) stage(t *testing.T, partitions int32, more ...string) *play {
	t.Helper()
	name := t.Name()
	return c.stageAs(t, "app-"+strings.ToLower(name[strings.LastIndexByte(name, '/')+1:]), partitions, more...)
}

// stageAs is stage with a name.
func (c *cast) stageAs(t *testing.T, group string, partitions int32, more ...string) *play {
	t.Helper()
	p := &play{cast: c, t: t, group: group}
	p.in, p.out = p.group+"-in", p.group+"-out"
	topics := []string{p.in, p.out}
	for _, m := range more {
		topics = append(topics, p.group+m)
	}
	kafkatest.CreateTopics(t, c.streams, partitions, topics...)
	p.sink = kafkatest.Watch(t, c.direct, p.out)
	return p
}

func (p *play) options(name string, o kafkatest.AppOptions) kafkatest.AppOptions {
	o.Bootstrap, o.Group, o.Name = p.streams, p.group, name
	return o
}

// start starts an instance in the shared JVM.
func (p *play) start(name string, o kafkatest.AppOptions) *kafkatest.App {
	p.t.Helper()
	return p.host.Start(p.t, p.options(name, o))
}

// startAlone starts an instance that can be killed and paused.
func (p *play) startAlone(name string, o kafkatest.AppOptions) *kafkatest.App {
	p.t.Helper()
	return kafkatest.StartApp(p.t, p.options(name, o))
}

// oneOwner fails the test if a task was owned twice at a time, except by what may have been.
func (p *play) oneOwner(excused func(kafkatest.Breach) bool) {
	p.t.Helper()
	for _, b := range kafkatest.CheckTenures(p.sink.Seen()) {
		if excused == nil || !excused(b) {
			p.t.Error(b)
		}
	}
}

// calm fails the test if an instance had a thread that died.
func (p *play) calm(apps ...*kafkatest.App) {
	p.t.Helper()
	for _, a := range apps {
		if u := a.Uncaught(); len(u) > 0 {
			p.t.Errorf("instance %s had uncaught exceptions: %q", a.Name(), u)
		}
	}
}
