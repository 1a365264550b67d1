package wire

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestForgetIsAskedAndAnsweredInAFieldOfOurs(t *testing.T) {
	body := ForgetRequest(1000003).AppendTo(nil)
	msg, err := ParseRequest(64, 0, body)
	if err != nil {
		t.Fatal(err)
	}
	r := msg.(*kmsg.UnregisterBrokerRequest)
	if node, ok := ForgottenNode(r); !ok || node != 1000003 || r.BrokerID != -1 {
		t.Errorf("node %d, %v, broker %d: whoever does not know the field must find no broker", node, ok, r.BrokerID)
	}
	plain := kmsg.NewPtrUnregisterBrokerRequest()
	plain.BrokerID = 3
	if node, ok := ForgottenNode(plain); ok {
		t.Errorf("a request of Kafka's tools is about the replica %d", node)
	}
	odd := kmsg.NewPtrUnregisterBrokerRequest()
	odd.UnknownTags.Set(forgetTag, []byte{1})
	if node, ok := ForgottenNode(odd); ok {
		t.Errorf("a field that is none of ours is about the replica %d", node)
	}
	answer := kmsg.NewPtrUnregisterBrokerResponse()
	if IsForgetResponse(answer) {
		t.Error("an answer of Kafka's is marked")
	}
	MarkForgetResponse(answer)
	if back, err := ParseResponse(64, 0, answer.AppendTo(nil)); err != nil || !IsForgetResponse(back.(*kmsg.UnregisterBrokerResponse)) {
		t.Errorf("%+v %v", back, err)
	}
}
