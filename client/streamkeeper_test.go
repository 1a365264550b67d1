package client

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"streamkeeper/client/topology"
	"streamkeeper/internal/kafkatest"
)

// The same member and the same calls, with streamkeeper as the coordinator; it is killed and comes back meanwhile.
func TestAGoMemberOnStreamkeeper(t *testing.T) {
	if testing.Short() {
		t.Skip("-short, and this waits for heartbeats of a process that is killed and started again")
	}
	keeper := kafkatest.StartStreamkeeper(t, "dev", "--plugin", "memory", "--set", "group.streams.initial.rebalance.delay.ms=0")
	const group = "go-app"
	in := group + "-in"
	kafkatest.CreateTopics(t, keeper.Bootstrap(), 4, in)
	cl := newClient(t, keeper.Bootstrap())
	admin := NewAdmin(cl)
	cfg := MemberConfig{Group: group, Subtopologies: []Subtopology{{ID: "0", SourceTopics: []string{in}}}, Description: odd(in), ProcessID: "process-a"}
	a := runMember(t, cl, cfg)
	a.waitTasks(4)
	select {
	case err := <-a.pushes:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the topology description was not asked for")
	}
	pictured := admin.DescribeStreamsGroups(t.Context(), []string{group}, DescribeOptions{IncludeTopologyDescription: true})[0]
	if pictured.Err != nil || pictured.Description.TopologyDescription == nil {
		t.Fatalf("%+v, %v", pictured.Description, pictured.Err)
	}
	want, err := topology.ToWire(cfg.Description)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := topology.ToWire(pictured.Description.TopologyDescription); err != nil || !reflect.DeepEqual(back, want) {
		t.Errorf("pushed\n%+v\ndescribed\n%+v\n%v", want, back, err)
	}
	cfg.ProcessID = "process-b"
	b := runMember(t, newClient(t, keeper.Bootstrap()), cfg)
	b.waitTasks(2)
	a.waitTasks(2)
	for _, m := range []*running{a, b} {
		offsets := map[TopicPartition]Offset{}
		for _, task := range m.Tasks().Active {
			offsets[TopicPartition{in, task.Partition}] = Offset{0, -1, m.ID()}
		}
		if err := m.Commit(t.Context(), offsets); err != nil {
			t.Error(err)
		}
	}
	got := admin.DescribeStreamsGroups(t.Context(), []string{group, "no-such-group"}, DescribeOptions{IncludeAuthorizedOperations: true})
	if d := got[0].Description; got[0].Err != nil || len(d.Members) != 2 || d.Subtopologies[0].SourceTopics[0] != in || !errors.Is(got[1].Err, kerr.GroupIDNotFound) {
		t.Fatalf("%+v", got)
	}
	keeper.Kill()
	keeper.Restart()
	all := admin.ListStreamsGroupOffsets(t.Context(), map[string][]TopicPartition{group: nil}, OffsetsOptions{})
	if all[0].Err != nil || len(all[0].Offsets) != 4 {
		t.Errorf("%+v", all)
	}
	b.stop()
	kafkatest.Eventually(t, 2*time.Minute, func() error { // the member was not thrown out, and takes over
		if got := a.Tasks(); len(got.Active) != 4 {
			return errors.New("tasks " + got.String())
		}
		return nil
	})
	a.mu.Lock()
	if all := strings.Join(a.log, ", "); strings.Contains(all, "lose") {
		t.Errorf("the member was told %s", all)
	}
	a.mu.Unlock()
	if err := admin.DeleteStreamsGroups(t.Context(), group)[0].Err; !errors.Is(err, kerr.NonEmptyGroup) {
		t.Errorf("delete of a group with a member: %v", err)
	}
	a.stop()
	if listed, err := admin.ListStreamsGroups(t.Context(), "empty"); err != nil || len(listed) != 1 || listed[0].Group != group {
		t.Errorf("%+v, %v", listed, err)
	}
	if err := admin.DeleteStreamsGroups(t.Context(), group)[0].Err; err != nil {
		t.Error(err)
	}
}
