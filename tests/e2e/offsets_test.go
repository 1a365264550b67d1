package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/client"
	"streamkeeper/internal/kafkatest"
)

// TestOffsetsByTools: everything that kafka-streams-groups does with the offsets of a group prints, and does, before streamkeeper what it does before
// Kafka's own coordinator; and the offsets of a deleted topic go.
func TestOffsetsByTools(t *testing.T) {
	told := make(map[string][]string)
	var mu sync.Mutex
	built := false
	t.Run("worlds", func(t *testing.T) {
		for _, w := range []world{itself, before39, before44} {
			p := w.build(t)
			t.Run(w.name, func(t *testing.T) {
				t.Parallel()
				lines := offsetsStory(t, p)
				mu.Lock()
				defer mu.Unlock()
				told[w.name] = lines
			})
		}
		built = true
	})
	if !built {
		t.Skip("there is no world to play in, see above")
	}
	want := told[itself.name]
	if len(want) == 0 {
		t.Fatal("nothing was told before Kafka itself")
	}
	for name, got := range told {
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Errorf("%s: step %d\n got %s\nwant %s", name, i, at(got, i), at(want, i))
			}
		}
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "nothing"
}

// offsetsStory tells what each call printed, and which offsets there were after those that change some.
func offsetsStory(t *testing.T, p *place) (told []string) {
	const group, in, other, unread, internal = "reset", "reset-in", "reset-other", "reset-unread", "reset-by-repartition"
	t.Cleanup(func() { (&cast{place: p}).deleteGroups(t) }) // a shared cluster is left without groups
	for topic, partitions := range map[string]int32{in: 3, other: 1, unread: 1} {
		forEver := "-1" // the records below are old
		if _, err := kafkatest.Admin(t, p.direct).CreateTopic(t.Context(), partitions, 1, map[string]*string{"retention.ms": &forEver}, topic); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	fillAt(t, p.direct, in, begin, 10, 10, 0) // a record a second; the last partition stays empty
	fillAt(t, p.direct, other, begin, 4)

	tools := kafkatest.Tools(t, p.streams)
	call := func(args ...string) string {
		t.Helper()
		args = append(args, "--timeout", "60000")
		out, errOut, exit := tools.Run("kafka-streams-groups", args...)
		errOut, _, _ = strings.Cut(errOut, "\n")
		lines := strings.Split(out, "\n")
		slices.Sort(lines) // rows come in no defined order
		told = append(told, fmt.Sprintf("%s: exit %d\n%s\n%s", strings.Join(args, " "), exit, strings.Join(lines, "\n"), errOut))
		return out
	}
	reset := func(args ...string) string {
		t.Helper()
		return call(append([]string{"--reset-offsets", "--group", group}, args...)...)
	}
	committed := func() {
		t.Helper()
		var all []string
		for _, topic := range []string{in, other, internal} {
			offsets := kafkatest.Committed(t, p.streams, group, topic)
			for _, partition := range slices.Sorted(maps.Keys(offsets)) {
				all = append(all, fmt.Sprintf("%s-%d=%d", topic, partition, offsets[partition]))
			}
		}
		told = append(told, "committed "+strings.Join(all, " "))
	}

	call("--reset-offsets", "--group", "nobody", "--all-input-topics", "--to-earliest", "--dry-run")
	call("--delete-offsets", "--group", "nobody", "--input-topic", in)

	// While the group is active nothing can be reset, and nothing be deleted of what it reads.
	leave := commitAs(t, p, group, []client.Subtopology{
		{ID: "0", SourceTopics: []string{in, other}, RepartitionSinkTopics: []string{internal}},
		{ID: "1", RepartitionSourceTopics: []client.InternalTopic{{Name: internal, Partitions: 2}}},
	}, map[client.TopicPartition]client.Offset{
		{Topic: in, Partition: 0}: {Offset: 5, LeaderEpoch: -1}, {Topic: in, Partition: 1}: {Offset: 3, LeaderEpoch: -1},
		{Topic: in, Partition: 2}: {Offset: 0, LeaderEpoch: -1}, {Topic: other, Partition: 0}: {Offset: 2, LeaderEpoch: -1},
		{Topic: internal, Partition: 1}: {Offset: 6, LeaderEpoch: -1},
	})
	committed()
	reset("--all-input-topics", "--to-earliest", "--execute")
	call("--delete-offsets", "--group", group, "--input-topic", in+":0")
	call("--delete-offsets", "--group", group, "--input-topic", internal+":1")
	committed()
	leave()

	for _, to := range [][]string{
		{"--to-earliest"}, {"--to-latest"}, {"--to-current"}, {"--to-offset", "4"}, {"--to-offset", "100"}, {"--shift-by", "2"}, {"--shift-by", "-4"},
		{"--to-datetime", "2024-01-01T00:00:05.500"}, {"--to-datetime", "2030-01-01T00:00:00.000"}, {"--by-duration", "P1DT0H0M0S"},
	} {
		reset(append([]string{"--all-input-topics", "--dry-run"}, to...)...)
	}
	committed()
	reset("--input-topic", in+":0,1", "--to-offset", "7", "--execute")
	committed()
	reset("--input-topic", unread, "--to-earliest", "--execute")
	reset("--input-topic", "not-there", "--to-earliest", "--execute")
	reset("--all-input-topics", "--to-earliest")

	// Exported, edited, and taken in again.
	plan := filepath.Join(t.TempDir(), "plan.csv")
	exported := reset("--all-input-topics", "--to-current", "--export", "--dry-run")
	if !strings.Contains(exported, in+",0,7\n") {
		t.Errorf("the exported plan is\n%s", exported)
	}
	edited := strings.ReplaceAll(strings.TrimSpace(exported), in+",0,7", in+",0,9") + "\n"
	if err := os.WriteFile(plan, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errOut, exit := tools.Run("kafka-streams-groups", "--reset-offsets", "--group", group, "--from-file", plan, "--execute")
	rows := strings.Split(out, "\n")
	slices.Sort(rows)
	told = append(told, fmt.Sprintf("from file: exit %d %q %s", exit, rows, errOut)) // the file's name differs
	committed()

	call("--delete-offsets", "--group", group, "--input-topic", in+":1,2")
	call("--delete-offsets", "--group", group, "--input-topic", in+":9")
	call("--delete-offsets", "--group", group, "--input-topic", "not-there")
	committed()

	// A topic is deleted, and made again: its offsets are gone, those of the others are not.
	adm := kafkatest.Admin(t, p.direct)
	ctx, cancel := context.WithTimeout(t.Context(), outcome)
	defer cancel()
	if _, err := adm.DeleteTopic(ctx, other); err != nil {
		t.Fatal(err)
	}
	offsetsAre(t, p, group, other, 0)
	committed()
	kafkatest.Eventually(t, outcome, func() error { // its deletion takes the cluster a moment
		resp, err := adm.CreateTopic(ctx, 1, 1, nil, other)
		return errors.Join(err, resp.Err)
	})
	committed()
	call("--delete-offsets", "--group", group, "--all-input-topics")
	committed()
	return told
}

// offsetsAre waits until the group has that many offsets of a topic. It asks by name: while the topic is being deleted its id means nothing to anybody.
func offsetsAre(t *testing.T, p *place, group, topic string, n int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(p.streams))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	kafkatest.Eventually(t, outcome, func() error {
		all := client.NewAdmin(cl).ListStreamsGroupOffsets(t.Context(), map[string][]client.TopicPartition{group: nil}, client.OffsetsOptions{})[0]
		if all.Err != nil {
			return all.Err
		}
		got := 0
		for _, o := range all.Offsets {
			if o.Topic == topic && o.Offset >= 0 {
				got++
			}
		}
		if got != n {
			return fmt.Errorf("%s has %d offsets of %s, want %d: %+v", group, got, topic, n, all.Offsets)
		}
		return nil
	})
}

// commitAs makes a member commit; leave ends it.
func commitAs(t *testing.T, p *place, group string, topology []client.Subtopology, offsets map[client.TopicPartition]client.Offset) (leave func()) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(p.streams), kgo.ClientID("go-member"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	got := make(chan struct{})
	var once sync.Once
	m, err := client.NewMember(cl, client.MemberConfig{
		Group: group, ProcessID: "p", Subtopologies: topology,
		Assign: func(_ context.Context, tasks client.Tasks) error {
			if len(tasks.Active) > 0 {
				once.Do(func() { close(got) })
			}
			return nil
		},
		Revoke: func(context.Context, client.Tasks) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	end := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the member ended with %v", err)
		}
	})
	t.Cleanup(end)
	select {
	case <-got:
	case err := <-done:
		t.Fatalf("the member ended: %v", err)
	case <-time.After(outcome):
		t.Fatal("the member got no tasks")
	}
	if err := m.Commit(t.Context(), offsets); err != nil {
		t.Fatal(err)
	}
	return end
}

// fillAt writes counts[i] records into partition i, a second apart.
func fillAt(t *testing.T, bootstrap, topic string, begin time.Time, counts ...int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var records []*kgo.Record
	for p, n := range counts {
		for i := range n {
			records = append(records, &kgo.Record{Topic: topic, Partition: int32(p), Value: []byte("v"), Timestamp: begin.Add(time.Duration(i) * time.Second)})
		}
	}
	if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}
