package gateway

// produced is what a Produce request told while it passed.
type produced struct {
	acks    int16 // 0: no response will come
	refused bool  // it wrote to a topic of the coordinator's: that topic was blanked, and the response must say so
}

// produceIDVersion is the first Produce version that names topics by id (KIP-516).
const produceIDVersion = 13

// walkProduce passes the body of a Produce request (9 and later are compact). Writes to the
// coordinator's own topics are blanked on the way: the name or id is replaced by one that does not exist, of the same length, so
// that the cluster refuses it and the other topics of the request are written.
//
//	transactional id (v3+) │ acks int16 │ timeout int32 │ topics │ tags
//	topic:     name (up to v12) or id 16 bytes │ partitions │ tags
//	partition: index int32 │ records │ tags
func walkProduce(w *walker, version int16, own ownTopics) (produced, error) {
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
		refused, err := walkProduceTopic(w, version, own)
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

func walkProduceTopic(w *walker, version int16, own ownTopics) (refused bool, err error) {
	if version >= produceIDVersion {
		id, err := w.peek(16)
		if err != nil {
			return false, err
		}
		if ours := own.find(nil, [16]byte(id)); ours != nil {
			return true, w.replace(ours.blankID[:])
		}
		return false, w.pass(16)
	}
	n, err := w.stringLength(version >= 9)
	if err != nil || n <= 0 {
		return false, err
	}
	for _, ours := range own {
		if n != int64(len(ours.name)) {
			continue
		}
		name, err := w.peek(int(n))
		if err != nil {
			return false, err
		}
		if string(name) == ours.name {
			return true, w.replace(ours.blankName)
		}
	}
	return false, w.pass(n)
}
