package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Everything that would change one of the coordinator's topics is refused; what else stands in the same request is done.
func TestOwnTopicsAreReadOnly(t *testing.T) {
	for name, text := range map[string]string{logTopic: logTopicText, descriptionTopic: descriptionTopicText} {
		t.Run(name, func(t *testing.T) { ownTopicIsReadOnly(t, name, text) })
	}
}

func ownTopicIsReadOnly(t *testing.T, ours, text string) {
	k := cluster(t)
	g, _ := start(t, newService(), k.ListenAddrs())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	direct, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	if err := direct.ProduceSync(ctx, &kgo.Record{Topic: ours, Value: []byte("the coordinator's")}).FirstErr(); err != nil {
		t.Fatal(err)
	}

	cl := client(t, g, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for _, r := range cl.ProduceSync(ctx, &kgo.Record{Topic: ours, Value: []byte("x")}, &kgo.Record{Topic: "in", Value: []byte("y")}) {
		denied := errors.Is(r.Err, kerr.TopicAuthorizationFailed)
		if denied != (r.Record.Topic == ours) || !denied && r.Err != nil {
			t.Errorf("produce to %s: %v", r.Record.Topic, r.Err)
		}
	}

	adm := kadm.NewClient(cl)
	adm.SetTimeoutMillis(5000)
	deleted, err := adm.DeleteTopics(ctx, ours, "out")
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, got, want error) {
		t.Helper()
		if !errors.Is(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	check("delete our topic", deleted[ours].Err, kerr.TopicAuthorizationFailed)
	check("delete another topic", deleted["out"].Err, nil)
	details, err := kadm.NewClient(direct).ListTopicsWithInternal(ctx)
	if err != nil || !details.Has(ours) || details.Has("out") {
		t.Errorf("topics afterwards: %v, %v", details.Names(), err)
	}

	grown, err := adm.CreatePartitions(ctx, 1, ours, "in")
	if err != nil {
		t.Fatal(err)
	}
	check("grow our topic", grown[ours].Err, kerr.TopicAuthorizationFailed)
	check("grow another topic", grown["in"].Err, nil)

	offsets := kadm.Offsets{}
	offsets.AddOffset(ours, 0, 1, -1)
	offsets.AddOffset("in", 0, 0, -1)
	cut, err := adm.DeleteRecords(ctx, offsets)
	if err != nil {
		t.Fatal(err)
	}
	logCut, _ := cut.Lookup(ours, 0)
	inCut, _ := cut.Lookup("in", 0)
	check("delete records of our topic", logCut.Err, kerr.TopicAuthorizationFailed)
	check("delete other records", inCut.Err, nil)

	altered, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "cleanup.policy", Value: kmsg.StringPtr("delete")}}, ours, "in")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range altered {
		if a.Name == ours {
			check("alter our topic", a.Err, kerr.TopicAuthorizationFailed)
			if a.ErrMessage != text {
				t.Errorf("text %q", a.ErrMessage)
			}
		} else {
			check("alter another topic", a.Err, nil)
		}
	}

	// Reading is free.
	reader := client(t, g, kgo.ConsumeTopics(ours), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	fs := reader.PollFetches(ctx)
	if err := fs.Err0(); err != nil || fs.NumRecords() != 1 {
		t.Errorf("reading our topic: %d records, %v", fs.NumRecords(), err)
	}
}

// Every version of Produce, by name and by id, alone and among others.
func TestProduceToOwnTopicsIsRefusedInEveryVersion(t *testing.T) {
	k := cluster(t)
	g, _ := start(t, newService(), k.ListenAddrs())
	meta := ask[*kmsg.MetadataResponse](t, raw(t, g.Addr().String()), 12, kmsg.NewPtrMetadataRequest())
	ids, leaders := map[string][16]byte{}, map[string]int32{}
	for _, topic := range meta.Topics {
		ids[*topic.Topic] = topic.TopicID
		for _, p := range topic.Partitions {
			leaders[fmt.Sprintf("%s/%d", *topic.Topic, p.Partition)] = p.Leader
		}
	}
	cl := raw(t, brokerAddr(t, g, leaders["in/0"]))
	refused := func(version int16, ours ...string) {
		t.Helper()
		req := produceRequest(version, append([]string{"in"}, ours...)...)
		req.TransactionID = nil
		for i := range req.Topics {
			topic := &req.Topics[i]
			topic.TopicID = ids[topic.Topic]
			topic.Partitions = topic.Partitions[:1]
			topic.Partitions[0].Records = nil
		}
		r := ask[*kmsg.ProduceResponse](t, cl, version, req)
		if len(r.Topics) != 1+len(ours) {
			t.Fatalf("v%d: %+v", version, r.Topics)
		}
		for _, name := range ours {
			var found *kmsg.ProduceResponseTopic
			for i := range r.Topics {
				if r.Topics[i].Topic == name || version >= 13 && r.Topics[i].TopicID == ids[name] {
					found = &r.Topics[i]
				}
			}
			if found == nil {
				t.Fatalf("v%d: %s is not in %+v", version, name, r.Topics)
			}
			if p := found.Partitions[0]; p.ErrorCode != 29 {
				t.Errorf("v%d: %s: error %d", version, name, p.ErrorCode)
			}
		}
	}
	for version := int16(3); version <= 12; version++ {
		refused(version, logTopic, descriptionTopic)
	}
	refused(13, logTopic) // kfake dies of two ids in one request that it doesn't know
	refused(13, descriptionTopic)
}

func TestTransactionsOfTheCoordinatorAreNotTaken(t *testing.T) {
	k := cluster(t)
	g, _ := start(t, newService(), k.ListenAddrs())
	cl := raw(t, g.Addr().String())
	ours := logTopic + "-7"
	for id, want := range map[string]bool{ours: true, logTopic + "-0": true, logTopic: false, logTopic + "-": false, logTopic + "-x": false, logTopic + "--1": false, "a-" + ours: false,
		ours + ".1": true, ours + ".20": true, ours + ".": false, ours + ".x": false, ours + ".-1": false, logTopic + "-.1": false, ours + ".1.1": false} {
		if got := g.isLogTransaction(id); got != want {
			t.Errorf("%q is the coordinator's: %v", id, got)
		}
	}
	for version := int16(0); version <= 5; version++ {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.TransactionTimeoutMillis = &ours, -1, -1, 1000
		if r := ask[*kmsg.InitProducerIDResponse](t, cl, version, req); r.ErrorCode != 53 || r.ProducerID != -1 {
			t.Errorf("InitProducerId v%d: %+v", version, r)
		}
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = -1, -1
	if r := ask[*kmsg.InitProducerIDResponse](t, cl, 4, req); r.ErrorCode != 0 || r.ProducerID < 0 {
		t.Errorf("an idempotent producer: %+v", r)
	}
	for version := int16(0); version <= 4; version++ {
		end := kmsg.NewPtrEndTxnRequest()
		end.TransactionalID = ours
		if r := ask[*kmsg.EndTxnResponse](t, cl, version, end); r.ErrorCode != 53 {
			t.Errorf("EndTxn v%d: %+v", version, r)
		}
		add := kmsg.NewPtrAddOffsetsToTxnRequest()
		add.TransactionalID, add.Group = ours, "g"
		if r := ask[*kmsg.AddOffsetsToTxnResponse](t, cl, version, add); r.ErrorCode != 53 {
			t.Errorf("AddOffsetsToTxn v%d: %+v", version, r)
		}
		commit := requestFor(txnOffsetCommit, "g").(*kmsg.TxnOffsetCommitRequest)
		commit.TransactionalID = ours
		if got := codesOf(ask[kmsg.Response](t, cl, version, commit)); got != "in/2=53" {
			t.Errorf("TxnOffsetCommit v%d: %s", version, got)
		}
	}
	partitions := func(version int16, id string, topics ...string) map[string]int16 {
		add := kmsg.NewPtrAddPartitionsToTxnRequest()
		add.TransactionalID = id
		txn := kmsg.NewAddPartitionsToTxnRequestTransaction()
		txn.TransactionalID = id
		for _, topic := range topics {
			rt := kmsg.NewAddPartitionsToTxnRequestTopic()
			rt.Topic, rt.Partitions = topic, []int32{0}
			add.Topics = append(add.Topics, rt)
			xt := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
			xt.Topic, xt.Partitions = topic, []int32{0}
			txn.Topics = append(txn.Topics, xt)
		}
		add.Transactions = append(add.Transactions, txn)
		r := ask[*kmsg.AddPartitionsToTxnResponse](t, cl, version, add)
		got := map[string]int16{}
		for _, t := range r.Topics {
			got[t.Topic] = t.Partitions[0].ErrorCode
		}
		for _, x := range r.Transactions {
			for _, t := range x.Topics {
				got[t.Topic] = t.Partitions[0].ErrorCode
			}
		}
		return got
	}
	for version := int16(0); version <= 5; version++ {
		if got := fmt.Sprint(partitions(version, "app", "in", logTopic)); got != fmt.Sprintf("map[%s:29 in:55]", logTopic) {
			t.Errorf("AddPartitionsToTxn v%d: %s", version, got)
		}
		if got := fmt.Sprint(partitions(version, ours, "in")); got != "map[in:53]" {
			t.Errorf("AddPartitionsToTxn v%d of the coordinator's id: %s", version, got)
		}
	}
}

// What clients ask of each node, the own node answers for itself alone.
func TestTheOwnNodeAnswersForItself(t *testing.T) {
	k := cluster(t)
	g, _ := start(t, newService(), k.ListenAddrs())
	cl := raw(t, g.Addr().String())
	if r := ask[*kmsg.ListTransactionsResponse](t, cl, 0, kmsg.NewPtrListTransactionsRequest()); len(r.TransactionStates) != 0 || r.ErrorCode != 0 {
		t.Errorf("ListTransactions: %+v", r)
	}
	for version := int16(1); version <= 4; version++ {
		if r := ask[*kmsg.DescribeLogDirsResponse](t, cl, version, kmsg.NewPtrDescribeLogDirsRequest()); len(r.Dirs) != 1 || len(r.Dirs[0].Topics) != 0 || r.Dirs[0].ErrorCode != 0 {
			t.Errorf("DescribeLogDirs v%d: %+v", version, r)
		}
	}
	own, broker := fmt.Sprint(testNode), "1"
	d := kmsg.NewPtrDescribeConfigsRequest()
	for _, name := range []string{own, broker} {
		res := kmsg.NewDescribeConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeBroker, name
		d.Resources = append(d.Resources, res)
	}
	// Both in one request, at broker 1, which knows its own.
	r := ask[*kmsg.DescribeConfigsResponse](t, raw(t, brokerAddr(t, g, 1)), 4, d)
	for _, res := range r.Resources {
		if res.ErrorCode != 0 || (len(res.Configs) == 0) != (res.ResourceName == own) {
			t.Errorf("DescribeConfigs of %s: %d with %d configs", res.ResourceName, res.ErrorCode, len(res.Configs))
		}
	}
	if len(r.Resources) != 2 {
		t.Errorf("DescribeConfigs: %d resources", len(r.Resources))
	}
	for _, version := range []int16{0, 1} {
		a := kmsg.NewPtrIncrementalAlterConfigsRequest()
		res := kmsg.NewIncrementalAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeBroker, own
		a.Resources = append(a.Resources, res)
		if r := ask[*kmsg.IncrementalAlterConfigsResponse](t, cl, version, a); len(r.Resources) != 1 || r.Resources[0].ErrorCode != 42 {
			t.Errorf("IncrementalAlterConfigs: %+v", r)
		}
		b := kmsg.NewPtrAlterConfigsRequest()
		old := kmsg.NewAlterConfigsRequestResource()
		old.ResourceType, old.ResourceName = kmsg.ConfigResourceTypeBrokerLogger, own
		b.Resources = append(b.Resources, old)
		if r := ask[*kmsg.AlterConfigsResponse](t, cl, version, b); len(r.Resources) != 1 || r.Resources[0].ErrorCode != 42 {
			t.Errorf("AlterConfigs: %+v", r)
		}
	}
}

// kafka-reassign-partitions ends with deleting three configurations of every node of the cluster. The own node never had them.
func TestTheOwnNodeHasNothingToDelete(t *testing.T) {
	g, _ := start(t, newService(), cluster(t).ListenAddrs())
	throttles := []string{"leader.replication.throttled.rate", "follower.replication.throttled.rate", "replica.alter.log.dirs.io.max.bytes.per.second"}
	config := func(name string, op kmsg.IncrementalAlterConfigOp) kmsg.IncrementalAlterConfigsRequestResourceConfig {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		if c.Name, c.Op = name, op; op != kmsg.IncrementalAlterConfigOpDelete {
			c.Value = kmsg.StringPtr("1")
		}
		return c
	}
	resource := func(name string, more ...kmsg.IncrementalAlterConfigsRequestResourceConfig) kmsg.IncrementalAlterConfigsRequestResource {
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.Configs = kmsg.ConfigResourceTypeBroker, name, more
		for _, c := range throttles {
			r.Configs = append(r.Configs, config(c, kmsg.IncrementalAlterConfigOpDelete))
		}
		return r
	}
	own := fmt.Sprint(testNode)
	for what, c := range map[string]struct {
		resources []kmsg.IncrementalAlterConfigsRequestResource
		codes     string
	}{
		"deleting alone":      {[]kmsg.IncrementalAlterConfigsRequestResource{resource(own)}, own + "=0"},
		"a setting with it":   {[]kmsg.IncrementalAlterConfigsRequestResource{resource(own, config("log.cleaner.threads", kmsg.IncrementalAlterConfigOpSet))}, own + "=42"},
		"twice":               {[]kmsg.IncrementalAlterConfigsRequestResource{resource(own), resource(own)}, own + "=42 " + own + "=42"},
		"with that of others": {[]kmsg.IncrementalAlterConfigsRequestResource{resource(own), resource("1")}, own + "=0 1=0"},
	} {
		addrs := []string{brokerAddr(t, g, 1)} // which takes what is for itself alone
		if !strings.Contains(c.codes, " 1=") {
			addrs = append(addrs, g.Addr().String())
		}
		for _, addr := range addrs {
			for version := int16(0); version <= 1; version++ {
				req := kmsg.NewPtrIncrementalAlterConfigsRequest()
				req.Resources = c.resources
				codes := map[string]bool{}
				resp := ask[*kmsg.IncrementalAlterConfigsResponse](t, raw(t, addr), version, req)
				for _, r := range resp.Resources {
					codes[fmt.Sprint(r.ResourceName, "=", r.ErrorCode)] = true
				}
				for _, want := range strings.Fields(c.codes) {
					if !codes[want] || len(resp.Resources) != len(c.resources) {
						t.Errorf("%s, at %s, v%d: %+v, want %s", what, addr, version, resp.Resources, c.codes)
						break
					}
				}
			}
		}
	}
}
