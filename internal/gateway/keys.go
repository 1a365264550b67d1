package gateway

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
)

// API keys by Kafka's names.
const (
	produce                 = int16(0)
	fetch                   = int16(1)
	metadata                = int16(3)
	offsetCommit            = int16(8)
	offsetFetch             = int16(9)
	findCoordinator         = int16(10)
	joinGroup               = int16(11)
	heartbeat               = int16(12)
	leaveGroup              = int16(13)
	syncGroup               = int16(14)
	describeGroups          = int16(15)
	listGroups              = int16(16)
	saslHandshake           = int16(17)
	apiVersions             = int16(18)
	deleteTopics            = int16(20)
	deleteRecords           = int16(21)
	initProducerID          = int16(22)
	addPartitionsToTxn      = int16(24)
	addOffsetsToTxn         = int16(25)
	endTxn                  = int16(26)
	txnOffsetCommit         = int16(28)
	describeConfigs         = int16(32)
	alterConfigs            = int16(33)
	describeLogDirs         = int16(35)
	createPartitions        = int16(37)
	deleteGroups            = int16(42)
	incrementalAlterConfigs = int16(44)
	offsetDelete            = int16(47)
	describeQuorum          = int16(55)
	describeCluster         = int16(60)
	unregisterBroker        = int16(64)
	listTransactions        = int16(66)
	consumerGroupHeartbeat  = int16(68)
	consumerGroupDescribe   = int16(69)
	listConfigResources     = int16(74)
	describeTopicPartitions = int16(75)
	shareGroupHeartbeat     = int16(76)
	shareGroupDescribe      = int16(77)
	shareFetch              = int16(78)
	shareAcknowledge        = int16(79)
	streamsGroupHeartbeat   = int16(88)
	streamsGroupDescribe    = int16(89)
	streamsTopologyUpdate   = int16(93)
)

// Errors that the gateway answers with itself.
var (
	unknownServerError     = kerr.UnknownServerError                 // -1
	coordinatorLoading     = kerr.CoordinatorLoadInProgress          // 14
	coordinatorUnavailable = kerr.CoordinatorNotAvailable            // 15
	notCoordinator         = kerr.NotCoordinator                     // 16
	unknownMember          = kerr.UnknownMemberID                    // 25
	topicDenied            = kerr.TopicAuthorizationFailed           // 29
	unsupportedMechanism   = kerr.UnsupportedSaslMechanism           // 33
	unsupportedVersion     = kerr.UnsupportedVersion                 // 35
	invalidRequest         = kerr.InvalidRequest                     // 42
	transactionalIDDenied  = kerr.TransactionalIDAuthorizationFailed // 53
	notAttempted           = kerr.OperationNotAttempted              // 55
	groupIDNotFound        = kerr.GroupIDNotFound                    // 69
	brokerNotRegistered    = kerr.BrokerIDNotRegistered              // 102
	rebootstrapRequired    = kerr.RebootstrapRequired                // 129
)

func errorName(code int16) string {
	if e := kerr.TypedErrorForCode(code); e != nil {
		return e.Message
	}
	return "error " + strconv.Itoa(int(code))
}
