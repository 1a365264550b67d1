package gateway

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

// route says what happens to the requests of a key. The zero route passes request and answer unread.
type route struct {
	// mode and rewrite say how the cluster's answer is passed on where the request goes up unread.
	mode    respondMode
	rewrite func(*Gateway, kmsg.Response)
	// plan decides about a decoded request. It runs on the receiver and may wait for a verdict, nothing else.
	plan func(*conn, *request) (plan, error)
}

// plan is what becomes of one decoded request. Exactly one of answer, local, forward, up is set; or merge with one
// of answer and local (our part) and one of forward and up (the cluster's).
type plan struct {
	answer  kmsg.Response                               // known at once
	local   func(context.Context) kmsg.Response         // run by the worker
	forward bool                                        // the request goes up as it came
	up      kmsg.Request                                // this goes up in its place
	rewrite func(*Gateway, kmsg.Response)               // of the cluster's answer
	merge   func(up, local kmsg.Response) kmsg.Response // both parts into one answer
	group   string                                      // for the span
}

func forward() plan                   { return plan{forward: true} }
func answerWith(r kmsg.Response) plan { return plan{answer: r} }

// routes by key. What is not listed passes untouched.
var routes [kmsg.MaxKey + 1]route

func init() {
	for key, r := range map[int16]route{
		apiVersions:   {plan: planApiVersions},
		saslHandshake: {plan: planSaslHandshake},

		// Broker addresses in answers.
		metadata:                {mode: respondDecoded, rewrite: rewriteMetadata},
		describeCluster:         {mode: respondDecoded, rewrite: rewriteDescribeCluster},
		describeQuorum:          {mode: respondDecoded, rewrite: rewriteDescribeQuorum},
		describeTopicPartitions: {mode: respondDecoded, rewrite: rewriteDescribeTopicPartitions},
		shareAcknowledge:        {mode: respondDecoded, rewrite: rewriteShareAcknowledge},
		fetch:                   {mode: respondFetch},
		shareFetch:              {mode: respondShareFetch},
		produce:                 {mode: respondProduce},
		findCoordinator:         {plan: planFindCoordinator},

		// Streams groups are ours on every listener.
		streamsGroupHeartbeat: {plan: planStreamsHeartbeat},
		streamsGroupDescribe:  {plan: planStreamsDescribe},
		streamsTopologyUpdate: {plan: planTopologyUpdate},

		// One group.
		offsetCommit:           {plan: planOffsetCommit},
		offsetDelete:           {plan: planOffsetDelete},
		joinGroup:              {plan: planJoinGroup},
		syncGroup:              {plan: planSyncGroup},
		heartbeat:              {plan: planHeartbeat},
		leaveGroup:             {plan: planLeaveGroup},
		consumerGroupHeartbeat: {plan: planConsumerHeartbeat},
		shareGroupHeartbeat:    {plan: planShareHeartbeat},
		addOffsetsToTxn:        {plan: planAddOffsetsToTxn},
		txnOffsetCommit:        {plan: planTxnOffsetCommit},

		// Several groups.
		offsetFetch:           {plan: planOffsetFetch},
		deleteGroups:          {plan: planDeleteGroups},
		describeGroups:        {plan: planDescribeGroups},
		consumerGroupDescribe: {plan: planConsumerDescribe},
		shareGroupDescribe:    {plan: planShareDescribe},

		// Asked of each node.
		listGroups:       {plan: planListGroups},
		listTransactions: {plan: planListTransactions},
		describeLogDirs:  {plan: planDescribeLogDirs},

		// Configurations: of the own node, of the log topic, of groups.
		describeConfigs:         {plan: planDescribeConfigs},
		alterConfigs:            {plan: planAlter},
		incrementalAlterConfigs: {plan: planAlter},
		listConfigResources:     {plan: planListConfigResources},

		// A node that is gone: ours, or a broker.
		unregisterBroker: {plan: planUnregisterBroker},

		// Writes to the log topic.
		deleteTopics:       {plan: planDeleteTopics},
		deleteRecords:      {plan: planDeleteRecords},
		createPartitions:   {plan: planCreatePartitions},
		initProducerID:     {plan: planInitProducerID},
		addPartitionsToTxn: {plan: planAddPartitionsToTxn},
		endTxn:             {plan: planEndTxn},
	} {
		routes[key] = r
	}
}

// decodes says that messages of the key are decoded or walked here, so that no version may be offered to clients
// that can't be.
func decodes(key int16) bool {
	r := &routes[key]
	return r.plan != nil || r.mode != respondSplice
}

// planSaslHandshake refuses SASL: a client that is told that its mechanism is not enabled says so and stops.
func planSaslHandshake(c *conn, rq *request) (plan, error) {
	c.g.metrics.refuse(c.ctx, "sasl")
	c.g.warn("sasl", "SASL refused: it is not supported yet, set security.protocol=PLAINTEXT at the client", "peer", c.client.conn.RemoteAddr().String(),
		"mechanism", rq.msg.(*kmsg.SASLHandshakeRequest).Mechanism)
	resp := rq.msg.ResponseKind().(*kmsg.SASLHandshakeResponse)
	resp.ErrorCode = unsupportedMechanism.Code
	return answerWith(resp), nil
}

// versionsOf is what the gateway offers where it answers whatever the cluster can do.
type versionsOf struct{ min, max int16 }

// ours are the APIs of streams groups, and of the replicas as nodes, in the versions that are served here.
var ours = map[int16]versionsOf{
	apiVersions:           {0, 5},
	streamsGroupHeartbeat: {0, 1},
	streamsGroupDescribe:  {0, 1},
	unregisterBroker:      {0, 0},
}

// topologyUpdate is 93, which is offered where topology descriptions are kept: a client pushes none to a coordinator that does not
// offer it.
var topologyUpdate = versionsOf{0, 0}

func init() {
	if topologyUpdate.max > wire.MaxVersion(streamsTopologyUpdate) {
		panic("gateway: offers a version that can't be decoded")
	}
	for key, v := range ours {
		if v.max > wire.MaxVersion(key) {
			panic("gateway: offers a version that can't be decoded")
		}
	}
}
