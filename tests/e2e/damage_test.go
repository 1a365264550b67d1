package e2e

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"streamkeeper/internal/kafkatest"
)

const (
	idleOffsets = 500 // committed offsets of a group without members: none of them is in memory
	// damagedBytes are overwritten in each file: in a small one hardly a block stays whole.
	damagedBytes = 64
	damageRounds = 12 // of each kind four, two for each replica
)

// idleGroup makes a group with offsets and without members, and returns what it has committed.
func (r *fleet) idleGroup(group string) map[int32]int64 {
	t := r.t
	t.Helper()
	kafkatest.CreateTopics(t, r.cluster.Bootstrap(), idleOffsets, group)
	c := &converts{t: t, r: r, in: group, adm: kafkatest.Admin(t, r.bootstrap()), partitions: idleOffsets}
	c.join("an idle group is made", group)
	var offsets kadm.Offsets
	want := map[int32]int64{}
	for p := range int32(idleOffsets) {
		want[p] = int64(p)*7 + 1
		offsets.Add(kadm.Offset{Topic: group, Partition: p, At: want[p], LeaderEpoch: -1, Metadata: fmt.Sprintf("metadata %d", p)})
	}
	kafkatest.Eventually(t, outcome, func() error { return c.adm.CommitAllOffsets(t.Context(), group, offsets) }) // once the member has left
	return want
}

// damage overwrites bytes in the files of a replica's stores, in place.
func damage(t *testing.T, dir string, random *rand.Rand) (files int) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "LOCK" {
			return nil // what is being removed at this moment
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return nil
		}
		defer f.Close()
		st, err := f.Stat()
		if err != nil || st.Size() == 0 {
			return err
		}
		for range damagedBytes {
			if _, err := f.WriteAt([]byte{byte(random.IntN(256))}, random.Int64N(st.Size())); err != nil {
				return err
			}
		}
		files++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if files == 0 {
		t.Fatalf("there is nothing to damage in %s", dir)
	}
	return files
}

// TestDataDirectoryIsDamaged: bytes are overwritten in the files of a replica, while it runs, is stopped, was killed. What it can't read any more it reads again from
// the log; no client is told anything that is not so, and members are told nothing that they would not try again after.
func TestDataDirectoryIsDamaged(t *testing.T) {
	if !*long {
		t.Skip("with -long: the package projection damages stores without brokers")
	}
	r := startFleet(t, kafkatest.Shared(t, kafka44), 2)
	r.waitSpread(r.nodes...)
	kafkatest.CreateTopics(t, r.cluster.Bootstrap(), partitions, "damaged-in")
	all := r.seekAs("damaged", "damaged-in")
	idle := []string{oneGroupEach(t, r, "idle")[0], oneGroupEach(t, r, "idle")[1]}
	want := map[string]map[int32]int64{}
	for _, group := range idle {
		want[group] = r.idleGroup(group)
	}
	r.during(all, "the groups are made", func() {})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	rebuilt := 0
	for round := range damageRounds {
		node := r.nodes[round%2]
		k := r.replicas[node]
		how := []string{"under the running replica", "while it is stopped", "after it was killed"}[round%3]
		r.during(all, fmt.Sprintf("round %d: damaged %s, node %d", round, how, node), func() {
			if round%3 == 2 {
				k.Kill()
			} else {
				k.Stop() // all that it has is in files then, and nothing of them in its memory after the start
			}
			if round%3 == 0 {
				k.Start()
				k.WaitReady()
			}
			damage(t, k.DataDir(), random)
			if round%3 != 0 {
				k.Start()
			}
			for range 5 {
				for _, group := range idle {
					r.exactly(node, group, want[group])
				}
			}
			kafkatest.Eventually(t, outcome, func() error { // also once it is well again
				if !k.Running() {
					t.Fatalf("round %d: replica %d has ended:\n%s", round, node, k.Output())
				}
				return k.Ready()
			})
			for _, group := range idle {
				kafkatest.Eventually(t, outcome, func() error {
					if got := kafkatest.Committed(t, r.bootstrap(), group, group); !maps.Equal(got, want[group]) {
						return fmt.Errorf("round %d: %s has committed %v", round, group, got)
					}
					return nil
				})
			}
		})
		rebuilt += strings.Count(k.Output(), "rebuilt from the log") + strings.Count(k.Output(), "the store is unusable")
		r.waitSpread(r.nodes...)
	}
	t.Logf("%d lines about stores that were made anew", rebuilt)
	if rebuilt == 0 {
		t.Error("no damage was noticed: nothing is tested")
	}
	checkFence(t, r.topic, readLog(t, r.cluster.Bootstrap(), r.topic))
}

// exactly asks a replica for the offsets of a group: it may send the client away, and say nothing else than what was committed.
func (r *fleet) exactly(node int32, group string, want map[int32]int64) {
	r.t.Helper()
	if said := r.askOffsets(node, group, nil); said != "offsets" {
		return
	}
	if got := kafkatest.Committed(r.t, r.replicas[node].Bootstrap(), group, group); !maps.Equal(got, want) {
		r.t.Errorf("replica %d says that %s has committed %v, want %v", node, group, got, want)
	}
}

// TestDataDirectoryIsReadOnly: what is below --data-dir can't be written any more, under a replica that runs, and when it is started. It leaves its shards to the other
// one and says why; once the directory is well it has its share again.
func TestDataDirectoryIsReadOnly(t *testing.T) {
	if !*long {
		t.Skip("with -long: a reason is believed for a minute; TestFullDisk has the shards of a replica that can't store go to another")
	}
	r := startFleet(t, kafkatest.Shared(t, kafka44), 2, "--plugin", "none")
	r.waitSpread(r.nodes...)
	kafkatest.CreateTopics(t, r.cluster.Bootstrap(), partitions, "frozen-in")
	all := r.seekAs("frozen", "frozen-in")
	group := oneGroupEach(t, r, "frozen-idle")[0]
	want := r.idleGroup(group)
	r.during(all, "the groups are made", func() {})
	k := r.replicas[nodeOne]
	var thaw func()
	r.during(all, "the directory is read-only under the running replica", func() {
		var ok bool
		if thaw, ok = kafkatest.ReadOnly(t, k.DataDir()); !ok {
			t.Skip("only root can make a file system read-only")
		}
		fillMemtables(t, r, "frozen") // more than its memory holds
		r.waitSpread(nodeTwo)
		r.exactly(nodeOne, group, want)
		r.exactly(nodeTwo, group, want)
		if status, body := k.Get("/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "read-only file system") {
			t.Errorf("/readyz: %d %s", status, body)
		}
	})
	if !k.Running() {
		t.Fatalf("it has ended:\n%s", k.Output())
	}
	r.during(all, "it is started with it", func() {
		k.Kill()
		k.Start()
		if code := k.WaitExit(outcome); code == 0 || !strings.Contains(k.Output(), "read-only file system") {
			t.Errorf("exit code %d:\n%s", code, k.Output())
		}
	})
	thaw()
	r.during(all, "it is well again", func() {
		k.Start()
		k.WaitReady()
		r.waitSpread(r.nodes...)
	})
	r.during(all, "it is read-only for a while", func() {
		thaw, _ = kafkatest.ReadOnly(t, k.DataDir())
		fillMemtables(t, r, "frozen-again")
		r.waitSpread(nodeTwo)
		thaw()
		kafkatest.Eventually(t, believed, k.Ready)
		kafkatest.Eventually(t, believed, func() error {
			if got := shares(r.owners()); got[nodeOne] == 0 {
				return fmt.Errorf("shards by owner %v", got)
			}
			return nil
		})
		r.waitSpread(r.nodes...)
		r.exactly(nodeOne, group, want)
	})
	checkFence(t, r.topic, readLog(t, r.cluster.Bootstrap(), r.topic))
}
