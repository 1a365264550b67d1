package gateway

import "bytes"

// produced is what a Produce request told while it passed.
type produced struct {
	acks    int16 // 0: no response will come
	refused bool  // it wrote to the log topic: that topic was blanked, and the response must say so
}

// produceIDVersion is the first Produce version that names topics by id (KIP-516).
const produceIDVersion = 13

// blankTopicID stands for the log topic's id in a request that must not reach it. No topic has it: the first bit
// pattern of a version 4 UUID is wrong.
var blankTopicID = [16]byte{'s', 't', 'r', 'e', 'a', 'm', 'k', 'e', 'e', 'p', 'e', 'r', '/', '/', '/', '/'}

// blankTopicName is the name of as many bytes that stands for the log topic in a request that must not reach it.
// A slash is illegal in topic names, so no topic has it.
func blankTopicName(name string) []byte { return bytes.Repeat([]byte{'/'}, len(name)) }

// walkProduce passes the body of a Produce request (9 and later are compact). Writes to the
// log topic are blanked on the way: its name or id is replaced by one that does not exist, of the same length, so
// that the cluster refuses it and the other topics of the request are written.
//
//	transactional id (v3+) │ acks int16 │ timeout int32 │ topics │ tags
//	topic:     name (up to v12) or id 16 bytes │ partitions │ tags
//	partition: index int32 │ records │ tags
func walkProduce(w *walker, version int16, logTopic string, logTopicID [16]byte) (produced, error) {
	compact := version >= 9
	tags := func() error {
		if !compact {
			return nil
		}
		return w.passTags()
	}
	var p produced
	if version >= 3 {
		if err := w.passString(compact); err != nil {
			return p, err
		}
	}
	var err error
	if p.acks, err = w.int16(); err != nil {
		return p, err
	}
	if err := w.pass(4); err != nil {
		return p, err
	}
	partition := func() error {
		if err := w.pass(4); err != nil {
			return err
		}
		if err := w.passBytes(compact); err != nil {
			return err
		}
		return tags()
	}
	err = w.elements(compact, func() error {
		refused, err := walkProduceTopic(w, version, logTopic, logTopicID)
		if err != nil {
			return err
		}
		p.refused = p.refused || refused
		if err := w.elements(compact, partition); err != nil {
			return err
		}
		return tags()
	})
	if err != nil {
		return p, err
	}
	if err := tags(); err != nil {
		return p, err
	}
	return p, w.end()
}

func walkProduceTopic(w *walker, version int16, logTopic string, logTopicID [16]byte) (refused bool, err error) {
	if version >= produceIDVersion {
		id, err := w.peek(16)
		if err != nil {
			return false, err
		}
		if logTopicID != ([16]byte{}) && [16]byte(id) == logTopicID {
			return true, w.replace(blankTopicID[:])
		}
		return false, w.pass(16)
	}
	n, err := w.stringLength(version >= 9)
	if err != nil || n <= 0 {
		return false, err
	}
	if n == int64(len(logTopic)) {
		name, err := w.peek(int(n))
		if err != nil {
			return false, err
		}
		if string(name) == logTopic {
			return true, w.replace(blankTopicName(logTopic))
		}
	}
	return false, w.pass(n)
}
