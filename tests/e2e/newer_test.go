package e2e

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
)

// kindOfRecord is a type of records of the log with a value of the version behind the newest that is known.
type kindOfRecord struct {
	kind   int16
	name   string
	fields string // of its key: (g)roup, (m)ember, (t)opic, (p)artition
	newer  string // value
}

// kindsOfRecords are all that a replica reads, in Kafka 4.4's bytes, and those of streamkeeper's own.
var kindsOfRecords = []kindOfRecord{
	{0, "LegacyOffsetCommit", "gtp", "\x00\x01"},
	{1, "OffsetCommit", "gtp", "\x00\x05"},
	{2, "GroupMetadata", "g", "\x00\x05"},
	{17, "StreamsGroupMetadata", "g", "\x00\x01"},
	{19, "StreamsGroupMemberMetadata", "gm", "\x00\x01"},
	{20, "StreamsGroupTargetAssignmentMetadata", "g", "\x00\x01"},
	{21, "StreamsGroupTargetAssignmentMember", "gm", "\x00\x01"},
	{22, "StreamsGroupCurrentMemberAssignment", "gm", "\x00\x01"},
	{23, "StreamsGroupTopology", "g", "\x00\x01"},
	{32000, "Ownership", "", `{"format":2}`},
	{32001, "GroupConfig", "g", `{"format":2}`},
	{32002, "TopologyDescriptionRefusal", "g", `{"format":2}`},
}

func (k kindOfRecord) key(group string) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(k.kind))
	str := func(s string) { b = append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...) }
	for _, f := range k.fields {
		switch f {
		case 'g':
			str(group)
		case 'm', 't':
			str("x")
		case 'p':
			b = binary.BigEndian.AppendUint32(b, 0)
		}
	}
	return b
}

// groupRecord is the value of a record of type 17, version 0: epoch, metadata hash, no tagged fields.
const groupRecord = "\x00\x00" + "\x00\x00\x00\x01" + "\x00\x00\x00\x00\x00\x00\x00\x00" + "\x00"

// TestRecordsOfANewerVersion: two replicas start before a log that a newer version has written. A shard with a value of a newer version, of whatever
// kind, is refused, with a word of what and where; nothing is written to it, and no client is told that it has no group or no offsets. Records of
// unknown types are passed over, and tagged fields that are not known as well.
func TestRecordsOfANewerVersion(t *testing.T) {
	t.Parallel()
	shards := int32(len(kindsOfRecords) + 2)
	r := newFleet(t, kafkatest.Shared(t, kafka44), 2, "--plugin", "none")
	adm := kafkatest.Admin(t, r.cluster.Bootstrap())
	compact := "compact"
	if resp, err := adm.CreateTopic(t.Context(), shards, 1, map[string]*string{"cleanup.policy": &compact}, r.topic); err != nil || resp.Err != nil {
		t.Fatal(err, resp.Err)
	}
	groups := make([]string, shards) // one that is in the log, and one that is not, of each shard
	strange := make([]string, shards)
	for p := range shards {
		groups[p], strange[p] = groupOf("newer", p, shards), groupOf("strange", p, shards)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(r.cluster.Bootstrap(), ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(r.topic))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	id, epoch, err := cl.ProducerID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all []*kgo.Record
	for p := range shards {
		known := kindOfRecord{kind: 17, fields: "g"}
		all = append(all, &kgo.Record{Partition: p, Key: known.key(groups[p]), Value: []byte(groupRecord)})
		if int(p) < len(kindsOfRecords) {
			k := kindsOfRecords[p]
			value := k.newer
			if k.name == "Ownership" { // it has to be of the producer that it names
				value = fmt.Sprintf(`{"format":2,"nodeId":%d,"address":"127.0.0.1:1","producerId":%d,"producerEpoch":%d,"claim":-1}`, nodeTwo, id, epoch)
			}
			all = append(all, &kgo.Record{Partition: p, Key: k.key(groups[p]), Value: []byte(value)})
			continue
		}
		unknown := kindOfRecord{kind: 24, fields: "g"}
		if p == shards-1 {
			unknown.kind = 32100
		}
		tagged := groupRecord[:len(groupRecord)-1] + "\x01" + "\xcf\x0f" + "\x03abc" // tag 1999
		all = append(all, &kgo.Record{Partition: p, Key: unknown.key(groups[p]), Value: []byte("\x00\x09something")},
			&kgo.Record{Partition: p, Key: known.key(groups[p]), Value: []byte(tagged)})
	}
	if err := cl.ProduceSync(t.Context(), all...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	ends := kafkatest.EndOffsets(t, r.cluster.Bootstrap(), r.topic)

	for _, node := range r.nodes {
		r.replicas[node].Set("--log-partitions", fmt.Sprint(shards))
		r.replicas[node].Start()
	}
	kafkatest.Eventually(t, takeover, func() error {
		serving, refused := 0, 0
		for _, node := range r.nodes {
			switch err := r.replicas[node].Ready(); {
			case err == nil: // the other one was sooner: what nobody can read stays where it is
			case !strings.Contains(err.Error(), "is refused"):
				return fmt.Errorf("/readyz of replica %d, which is assigned shards that it can't read, says %v", node, err)
			default:
				refused++
			}
			for _, s := range r.shardsAt(node) {
				if s.Serving {
					serving++
				}
			}
		}
		if want := int(shards) - len(kindsOfRecords); serving != want || refused == 0 {
			return fmt.Errorf("%d shards are served, want %d; %d replicas say that they can't read some", serving, want, refused)
		}
		return nil
	})
	for p, k := range kindsOfRecords {
		for _, node := range r.nodes {
			said := ""
			for line := range strings.Lines(r.replicas[node].Output()) {
				if strings.Contains(line, "a record can't be read, the partition is not served") && strings.Contains(line, fmt.Sprintf(`"partition":%d,`, p)) {
					said += line
				}
			}
			for _, part := range []string{fmt.Sprintf(`"offset":%d,`, ends[int32(p)]-1), k.name, "the newest that can be read is"} {
				if !strings.Contains(said, part) || strings.Count(said, "\n") != 1 {
					t.Errorf("replica %d says %q of a newer %s in partition %d at %d, want %q, once", node, said, k.name, p, ends[int32(p)]-1, part)
				}
			}
		}
		out, errOut, exit := kafkatest.Streamkeeper(t, "log", "--bootstrap-servers", r.cluster.Bootstrap(), "--log-topic", r.topic, "--partition", fmt.Sprint(p))
		if want := "(not decoded: unknown record version"; exit != 0 || strings.Count(out, want) != 1 || !strings.Contains(out, k.name+" ") {
			t.Errorf("streamkeeper log of a newer %s: exit %d, no %q\n%s%s", k.name, exit, want, out, errOut)
		}
		for _, group := range []string{groups[p], strange[p]} {
			r.neverDenied(group, group == groups[p] && k.kind != 17)
		}
	}
	for p := len(kindsOfRecords); p < int(shards); p++ {
		r.servesAsEver(groups[p])
	}
	for p := range kindsOfRecords {
		if now := kafkatest.EndOffsets(t, r.cluster.Bootstrap(), r.topic)[int32(p)]; now != ends[int32(p)] {
			t.Errorf("partition %d, which nobody can read, was written to: its end was %d and is %d", p, ends[int32(p)], now)
		}
	}

	to := t.TempDir() + "/newer.backup"
	out, errOut, exit := kafkatest.Streamkeeper(t, "backup", "--bootstrap-servers", r.cluster.Bootstrap(), "--log-topic", r.topic, "--to", to)
	if exit == 0 || !strings.Contains(errOut, "partition 0") || !strings.Contains(errOut, "offset 1") || !strings.Contains(errOut, "LegacyOffsetCommit has version 1") {
		t.Errorf("backup of a log that can't be read: exit %d\n%s%s", exit, out, errOut)
	}
	for _, node := range r.nodes {
		r.replicas[node].Stop()
		dir := r.replicas[node].DataDir()
		out, errOut, exit := kafkatest.Streamkeeper(t, "restore", "--dry-run", "--data-dir", dir)
		if exit != 0 || !strings.Contains(out, "not read to the log's end: partitions [0 1 2 3 4 5 6 7 8 9 10 11]\n") || !strings.Contains(errOut, "Records of the types [24 32100] are left out") {
			t.Errorf("what the data directory holds: exit %d\n%s%s", exit, out, errOut)
		}
		if _, errOut, exit := kafkatest.Streamkeeper(t, "restore", "--bootstrap-servers", r.cluster.Bootstrap(), "--log-topic", r.topic+"-again", "--data-dir", dir); exit == 0 || !strings.Contains(errOut, "--partial") {
			t.Errorf("a data directory that holds a part is restored without a word: exit %d\n%s", exit, errOut)
		}
	}
}

// shardAt is what a replica says of a shard.
type shardAt struct {
	Serving  bool   `json:"serving"`
	Declined string `json:"declined"`
}

// shardsAt are all shards as a replica sees them.
func (r *fleet) shardsAt(node int32) []shardAt {
	r.t.Helper()
	status, body := r.replicas[node].Get("/shards")
	var st struct {
		Shards []shardAt `json:"shards"`
	}
	if err := json.Unmarshal([]byte(body), &st); err != nil || status != http.StatusOK {
		r.t.Fatalf("/shards of replica %d: %d, %v, %s", node, status, err, body)
	}
	return st.Shards
}

// groupOf makes up a group of a shard.
func groupOf(name string, shard, shards int32) string {
	for i := 0; ; i++ {
		if group := fmt.Sprintf("%s-%d", name, i); partitionOf(group, shards) == shard {
			return group
		}
	}
}

// neverDenied asks each replica for a group of a shard that it can't read. All that it may say is that this can't be told now.
func (r *fleet) neverDenied(group string, known bool) {
	r.t.Helper()
	for _, node := range r.nodes {
		k := r.replicas[node]
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.SetVersion(4)
		find.CoordinatorKeys = []string{group}
		c := exchange(r.t, k, find).(*kmsg.FindCoordinatorResponse).Coordinators[0]
		// Of a group that may be the cluster's own a broker is named: what it is asked comes through here.
		if err := kerr.ErrorForCode(c.ErrorCode); !isOneOf(err, again) && (err != nil || known || c.NodeID >= nodeOne) {
			r.t.Errorf("replica %d names node %d, %v, as the coordinator of group %s, whose shard nobody can read", node, c.NodeID, err, group)
		}
		for _, q := range groupRequests(group, "", -1) {
			want := again
			if q.what == "list groups" {
				want = []error{errNotThere}
			}
			if err := q.outcome(group, exchange(r.t, k, q.req)); !isOneOf(err, want) {
				r.t.Errorf("replica %d answers %s of group %s, whose shard it can't read, with %v", node, q.what, group, err)
			}
		}
		remove := kmsg.NewPtrDeleteGroupsRequest()
		remove.SetVersion(2)
		remove.Groups = []string{group}
		if err := kerr.ErrorForCode(exchange(r.t, k, remove).(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode); !isOneOf(err, again) {
			r.t.Errorf("replica %d answers the deletion of group %s, whose shard it can't read, with %v", node, group, err)
		}
	}
}

// servesAsEver commits for a group without members at its owner, and reads what is committed at each replica.
func (r *fleet) servesAsEver(group string) {
	t := r.t
	t.Helper()
	adm := kafkatest.Admin(t, r.bootstrap())
	topic := group + "-in"
	kafkatest.CreateTopics(t, r.cluster.Bootstrap(), 1, topic)
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: 0, At: 0, LeaderEpoch: -1})
	kafkatest.Eventually(t, outcome, func() error { return adm.CommitAllOffsets(t.Context(), group, offsets) })
	if got := kafkatest.Committed(t, r.bootstrap(), group, topic); len(got) != 1 {
		t.Errorf("group %s, of a shard that can be read, has committed %v", group, got)
	}
	if d := describe(t, r.bootstrap(), group); d.Epoch != 1 {
		t.Errorf("group %s is described as %+v", group, d)
	}
	for _, node := range r.nodes {
		if err := groupRequests(group, "", -1)[2].outcome(group, exchange(t, r.replicas[node], groupRequests(group, "", -1)[2].req)); err != nil && !errors.Is(err, kerr.NotCoordinator) {
			t.Errorf("replica %d answers OffsetFetch of group %s with %v", node, group, err)
		}
	}
}

// TestANewerReplicaAmongOlderOnes: one of three replicas is of a version whose ownership records the others can't read. A shard that it had once is its
// own from then on: the others leave it to the newer one, whoever was its owner before, and serve what they can read. While the newer one is away its
// shards wait for it, and clients with them.
func TestANewerReplicaAmongOlderOnes(t *testing.T) {
	t.Parallel()
	r := startFleet(t, kafkatest.Shared(t, kafka44), 3, "--plugin", "none")
	r.waitSpread(r.nodes...)
	kafkatest.CreateTopics(t, r.cluster.Bootstrap(), partitions, "newer-in")
	seekers := r.seekAs("seek-newer", "newer-in")
	r.during(seekers, "all of one version", func() {})
	newest := r.nodes[2]
	// readable is how many shards the older ones can still read, because nobody of the newer version has claimed them, and others what of the rest is
	// owned by one of them.
	readable := func() (n int, others []int32) {
		owners := r.owners()
		for p, records := range readLog(t, r.cluster.Bootstrap(), r.topic) {
			if !slices.ContainsFunc(records, func(rec logRecord) bool { return rec.owner != nil && rec.owner.Format > 1 }) {
				n++
			} else if o := owners[p]; o != nil && o.NodeID != newest {
				others = append(others, p)
			}
		}
		return n, others
	}
	newer := func(what string) {
		t.Helper()
		kafkatest.Eventually(t, takeover, func() error {
			if got := shares(r.owners()); got[nodeOne]+got[nodeTwo]+got[newest] != 8 || got[newest] == 0 {
				return fmt.Errorf("%s: shards by owner %v", what, got)
			}
			n, others := readable()
			if len(others) > 0 {
				return fmt.Errorf("%s: the shards %v, which only replica %d can read, are owned by others", what, others, newest)
			}
			for _, node := range r.nodes {
				serving, declined := 0, 0
				for _, s := range r.shardsAt(node) {
					if s.Serving {
						serving++
					}
					if strings.HasPrefix(s.Declined, "record: ") {
						declined++
					}
				}
				if node == newest && (serving != 8-n || declined != 0) || node != newest && declined != 8-n {
					return fmt.Errorf("%s: replica %d serves %d shards and declines %d; there are %d that only replica %d can read", what, node, serving, declined, 8-n, newest)
				}
			}
			return nil
		})
		n, _ := readable()
		t.Logf("%s: %v own the shards, %d are readable for all", what, shares(r.owners()), n)
	}
	r.during(seekers, "the third is replaced by a newer version", func() {
		r.replicas[newest].Stop()
		r.replicas[newest].Use(kafkatest.FutureBinary(t))
		r.replicas[newest].Start()
		newer("the third is newer")
	})
	for _, node := range r.nodes {
		r.replicas[node].WaitReady()
	}
	// Which shards the third gets is for the group of the replicas to say; they are the same again when it comes back.
	for range 2 {
		before, _ := readable()
		r.replicas[newest].Stop()
		kafkatest.Eventually(t, takeover, func() error {
			if got := shares(r.owners()); got[nodeOne]+got[nodeTwo] < before || got[newest] > 0 {
				return fmt.Errorf("without the newer replica the shards are owned by %v, want all %d that the others can read", got, before)
			}
			return nil
		})
		// Without what was said of it the shards of the newer one would go back to it by chance only: they were the last to be given away.
		for _, node := range r.without(newest) {
			r.replicas[node].Stop()
			r.replicas[node].Start()
			kafkatest.Eventually(t, takeover, func() error {
				if got := shares(r.owners()); got[nodeOne]+got[nodeTwo] < before || got[node] == 0 {
					return fmt.Errorf("replica %d has started again, and the shards are owned by %v, want all %d that can be read", node, got, before)
				}
				return nil
			})
		}
		r.replicas[newest].Start()
		r.during(seekers, "the newer one was away", func() { newer("it is back") })
		for _, node := range r.nodes {
			r.replicas[node].WaitReady()
		}
	}
}
