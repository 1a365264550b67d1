package annex

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/internal/kafkatest"
	"streamkeeper/plugin"
	"streamkeeper/plugin/conformance"
	"streamkeeper/plugin/topic"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }

// onKafka runs test before each version of Kafka that is supported, with a log of its own.
func onKafka(t *testing.T, test func(t *testing.T, k *kafka)) {
	for _, version := range []string{kafkatest.V44, kafkatest.V391} {
		t.Run(version, func(t *testing.T) {
			c := kafkatest.Shared(t, kafkatest.Options{Version: version})
			k := &kafka{t: t, bootstrap: c.Bootstrap(), topic: "log-" + strings.ReplaceAll(t.Name(), "/", "-")}
			test(t, k)
		})
	}
}

// kafka is a record log on a real cluster.
type kafka struct {
	t         *testing.T
	bootstrap string
	topic     string
}

func (k *kafka) config() eventlog.KafkaConfig {
	return eventlog.KafkaConfig{
		SeedBrokers: strings.Split(k.bootstrap, ","), Topic: k.topic, Partitions: partitions, ReadWait: 100 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(k.t.Output(), nil)),
	}
}

func (k *kafka) open(ctx context.Context) (Topic, error) {
	cfg := k.config()
	cfg.Topic += topic.TopicSuffix
	bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	a, err := eventlog.OpenAnnex(bounded, cfg, eventlog.Annexing{What: "topology description topic", Advice: "name another", BatchBytesWanted: 8 << 20})
	if err != nil {
		return Topic{}, err
	}
	return Topic{Annex: a, DeleteRetention: a.Settings().DeleteRetention}, nil
}

func (k *kafka) replica(name, dir string) *replica {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), 30*time.Second)
	defer cancel()
	log, err := eventlog.OpenKafka(ctx, k.config())
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(log.Close)
	return newReplica(k.t, name, log, k.open, dir)
}

// TestKafka: the plugin over a real cluster, and who may write when.
func TestKafka(t *testing.T) {
	noise := randomText(3_500_000) // some 7 MB, hardly compressible
	onKafka(t, func(t *testing.T, k *kafka) {
		dir := t.TempDir()
		a := k.replica("a", dir)
		a.ownAll()
		t.Run("Conformance", func(t *testing.T) {
			conformance.Run(t, func(t *testing.T) plugin.Plugin { // each subtest closes its plugin
				p := topic.New(topic.Config{})
				p.Attach(a.space, slog.New(slog.NewTextHandler(t.Output(), nil)))
				return owned{p, a}
			})
		})

		// A large one, and one that is too large.
		large := &plugin.Description{Subtopologies: []plugin.Subtopology{{ID: "0"}}}
		for i := range 10_000 {
			large.Subtopologies[0].Nodes = append(large.Subtopologies[0].Nodes, plugin.Node{
				Name: fmt.Sprintf("KSTREAM-PROCESSOR-%010d", i), Type: plugin.NodeProcessor, Successors: []string{fmt.Sprintf("KSTREAM-PROCESSOR-%010d", i+1)}})
		}
		if _, err := wait(t, a.Set(a.ctx("large"), "large", 0, large)); err != nil {
			t.Fatal(err)
		}
		if got, err := wait(t, a.Get(t.Context(), "large", 0)); err != nil || !got.Equal(large) {
			t.Errorf("ten thousand nodes are not what was stored (%v)", err)
		}
		a.mustSet("noisy", 0, noise)
		a.want("noisy", 0, noise)
		if err := a.set("noisy", 1, randomText(8_000_000)); !plugin.IsPermanent(err) || !strings.Contains(err.Error(), "raise max.message.bytes of that topic") {
			t.Errorf("too large: %.300v", err)
		}

		// Another replica takes over.
		a.mustSet("g", 0, "first")
		b := k.replica("b", t.TempDir())
		b.own("g")
		b.want("g", 0, "first")
		a.mustSet("g", 1, "before the new owner wrote anything")
		b.mustSet("g", 2, "second")
		if err := a.set("g", 3, "late"); err == nil || err.Error() != textNotOwner || plugin.IsPermanent(err) {
			t.Errorf("a write of the former owner: %v", err)
		}
		b.wantEpochs("g", 0, 1, 2)
		b.mustDelete("g")
		b.wantEpochs("g")
		if err := a.set("g", 3, "late"); err == nil {
			t.Error("the former owner brings a deleted group's description back")
		}
		// The claim is renewed on the log's side.
		h, _ := b.held(eventlog.Partition("g", partitions))
		h.Renew()
		kafkatest.Eventually(t, patience, func() error {
			if now, _ := b.held(eventlog.Partition("g", partitions)); now.Claim.ProducerEpoch == h.Claim.ProducerEpoch {
				return fmt.Errorf("the claim is still %+v", now.Claim)
			}
			return nil
		})
		b.mustSet("g", 0, "second life")
		a.stop()
		b.stop()
		again := k.replica("again", dir) // goes on from what it had read
		again.own("g")
		again.want("g", 0, "second life")
		again.wantEpochs("g", 0)
		again.want("noisy", 0, noise)
	})
}

// randomText does not compress.
func randomText(runes int) string {
	var b strings.Builder
	for x := uint64(1); runes > 0; runes-- {
		x = x*6364136223846793005 + 1442695040888963407
		b.WriteRune(rune(0x100 + x>>50)) // two bytes each as a rule, fourteen bits of them random
	}
	return b.String()
}

// owned calls the plugin under the tenure of each group's partition.
type owned struct {
	*topic.Plugin
	r *replica
}

// TestKafkaTopicIsCheckedAtTheStart, and made anew when it is deleted later.
func TestKafkaTopicIsCheckedAtTheStart(t *testing.T) {
	onKafka(t, func(t *testing.T, k *kafka) {
		name := k.topic + topic.TopicSuffix
		adm := kafkatest.Admin(t, k.bootstrap)
		remove := func() {
			t.Helper()
			if _, err := adm.DeleteTopics(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			kafkatest.Eventually(t, patience, func() error {
				if l, err := adm.ListTopics(t.Context(), name); err != nil || l.Has(name) {
					return fmt.Errorf("%s is still there (%v)", name, err)
				}
				return nil
			})
		}
		compact, largest := "compact", "8388608"
		for _, c := range []struct {
			partitions int32
			configs    map[string]*string
			want       string
		}{
			{3, map[string]*string{"cleanup.policy": &compact}, "topology description topic " + name + ": partition count is 3, must be 4: name another"},
			{4, nil, "topology description topic " + name + `: cleanup.policy is "delete", must be "compact": `},
		} {
			if _, err := adm.CreateTopic(t.Context(), c.partitions, 1, c.configs, name); err != nil {
				t.Fatal(err)
			}
			if _, err := k.open(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			remove()
		}
		if !strings.HasSuffix(t.Name(), kafkatest.V44) {
			return // the rest takes its time, and is the same
		}
		a := k.replica("a", t.TempDir())
		configs, err := adm.DescribeTopicConfigs(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range [][2]string{{"cleanup.policy", compact}, {"max.message.bytes", largest}, {"compression.type", "producer"}, {"min.compaction.lag.ms", "3600000"}} {
			for _, c := range configs[0].Configs {
				if c.Key == want[0] && c.MaybeValue() != want[1] {
					t.Errorf("%s is %s, want %s", c.Key, c.MaybeValue(), want[1])
				}
			}
		}
		a.own("g")
		a.mustSet("g", 0, "first")
		remove()
		kafkatest.Eventually(t, 60*time.Second, func() error { // it is missing for ten seconds before it counts as gone
			d, err := wait(t, a.Get(t.Context(), "g", 0))
			if err == nil && d != nil {
				err = fmt.Errorf("%q is still there", nameOf(d))
			}
			return err
		})
		a.mustSet("g", 1, "second")
		a.want("g", 1, "second")
	})
}
