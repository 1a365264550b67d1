package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/eventlog"
	"streamkeeper/internal/history"
	"streamkeeper/projection"
)

// judge looks for what can't be, when everything has stopped.
func (w *world) judge() (wrong []string) {
	w.finishApps()
	for _, k := range w.keepers {
		k.Stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	log, err := history.ReadLog(ctx, logTopic, kgo.SeedBrokers(strings.Split(w.cluster.Bootstrap(), ",")...))
	if err != nil {
		w.t.Fatal(err)
	}
	h := w.rec.History()
	j, bad := h.CheckLog(log)
	for _, v := range append(h.Check(history.Options{}), bad...) {
		wrong = append(wrong, v.String())
	}
	for _, o := range w.onlookers {
		wrong = append(wrong, o.denials()...)
		if o.answered.Load() == 0 {
			wrong = append(wrong, fmt.Sprintf("replica %d has not answered its onlooker once", o.replica))
		}
	}
	for _, a := range w.apps {
		bad, told := judgeApp(a.group, a.sink.Seen(), j, w.skewed)
		wrong = append(wrong, bad...)
		w.t.Log(told)
	}
	outcomes, tenures := map[history.Outcome]int{}, 0
	for _, o := range h.Ops {
		outcomes[o.Outcome]++
	}
	for _, ts := range j.Tenures {
		tenures += len(ts)
	}
	var rejoins int64
	for _, m := range w.members {
		rejoins += m.rejoins.Load()
	}
	w.t.Logf("%d requests %v, %d claims, %d void records, %d times a member had been expired", len(h.Ops), outcomes, tenures, len(j.Void()), rejoins)
	wrong = append(wrong, w.judgeExpired(j)...)
	for i, k := range w.keepers {
		wrong = append(wrong, w.compare(i, k.DataDir(), j)...)
	}
	return wrong
}

// compare holds the projection of a replica that has stopped against the log.
func (w *world) compare(i int, dataDir string, j history.Judged) (wrong []string) {
	dir := projection.Config{Dir: dataDir + "/projection"}
	held, err := projection.Look(dir)
	if err != nil {
		return []string{fmt.Sprintf("replica %d: %v", i, err)}
	}
	dir.Identity = eventlog.Identity{Topic: held.Topic, TopicID: held.TopicID, Partitions: held.Partitions}
	dir.DeleteRetention = 24 * time.Hour
	store, err := projection.Open(dir)
	if err != nil {
		return []string{fmt.Sprintf("replica %d: %v", i, err)}
	}
	defer store.Close()
	for p := range int32(logPartitions) {
		applied := store.Applied(p)
		want := map[eventlog.Key]string{}
		for _, s := range j.Records[p] {
			switch {
			case s.Void || s.Offset >= applied:
			case s.Record.Value == nil:
				delete(want, s.Record.Key)
			default:
				want[s.Record.Key] = bytesOf(s.Record)
			}
		}
		got := map[eventlog.Key]string{}
		for _, group := range w.groups() {
			if eventlog.Partition(group, logPartitions) != p {
				continue
			}
			records, err := store.Group(p, group)
			if err == nil {
				err = store.Offsets(p, group, func(s projection.Stored) bool { records = append(records, s); return true })
			}
			if err != nil {
				wrong = append(wrong, fmt.Sprintf("replica %d, %s: %v", i, group, err))
			}
			for _, s := range records {
				got[s.Record.Key] = bytesOf(s.Record)
			}
		}
		if len(want) == 0 && len(got) == 0 {
			continue
		}
		keys := map[eventlog.Key]bool{}
		for k := range want {
			keys[k] = true
		}
		for k := range got {
			keys[k] = true
		}
		for _, k := range slices.SortedFunc(maps.Keys(keys), func(a, b eventlog.Key) int { return int(a.Type) - int(b.Type) }) {
			if got[k] != want[k] {
				wrong = append(wrong, fmt.Sprintf("replica %d, partition %d, %+v: it has %q, the log up to %d says %q", i, p, k, got[k], applied, want[k]))
			}
		}
	}
	return wrong
}

func bytesOf(r eventlog.Record) string { return string(eventlog.Encode(r).Value) }

func groupsOf(members []*member) []string {
	seen := map[string]bool{}
	for _, m := range members {
		seen[m.group] = true
	}
	return slices.Sorted(maps.Keys(seen))
}
