package wire

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Clients ask that a replica that is gone for good be left out of Metadata with Kafka's own request for brokers that are gone, UnregisterBroker (Java's
// Admin.unregisterBroker). Our own command puts the node id into a tagged field of ours, and -1 into the place of the broker's: a Kafka broker that is asked by
// mistake, or an older streamkeeper, which sends the request on to one, looks for a broker -1. A wrong id takes no broker out of the cluster.

// forgetTag is the number of our tagged field in request and answer. Kafka numbers its own from 0.
const forgetTag = 10_000

// noBroker is the broker id where the tagged field says who is meant.
const noBroker = -1

// ForgetRequest asks that a replica be forgotten.
func ForgetRequest(node int32) *kmsg.UnregisterBrokerRequest {
	r := kmsg.NewPtrUnregisterBrokerRequest()
	r.BrokerID = noBroker
	r.UnknownTags.Set(forgetTag, binary.BigEndian.AppendUint32(nil, uint32(node)))
	return r
}

// ForgottenNode is the node of a ForgetRequest; ok is false for a request about a broker.
func ForgottenNode(r *kmsg.UnregisterBrokerRequest) (node int32, ok bool) {
	r.UnknownTags.Each(func(tag uint32, b []byte) {
		if tag == forgetTag && len(b) == 4 && r.BrokerID == noBroker {
			node, ok = int32(binary.BigEndian.Uint32(b)), true
		}
	})
	return node, ok
}

// MarkForgetResponse makes an answer that of somebody who knows what a ForgetRequest is.
func MarkForgetResponse(r *kmsg.UnregisterBrokerResponse) { r.UnknownTags.Set(forgetTag, []byte{}) }

// IsForgetResponse says that an answer is marked. One that is not comes from a Kafka broker, or an older streamkeeper, and says nothing about replicas.
func IsForgetResponse(r *kmsg.UnregisterBrokerResponse) (is bool) {
	r.UnknownTags.Each(func(tag uint32, _ []byte) { is = is || tag == forgetTag })
	return is
}
