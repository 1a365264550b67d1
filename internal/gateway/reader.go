package gateway

import "encoding/binary"

// reader skips through a message in memory in its compact encoding. After the first impossible length it has failed
// and skips nothing more.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) skip(n int) {
	if r.failed || n < 0 || n > len(r.b) {
		r.failed = true
		return
	}
	r.b = r.b[n:]
}

func (r *reader) uvarint() int {
	if r.failed {
		return 0
	}
	v, n := binary.Uvarint(r.b[:min(len(r.b), 5)])
	if n <= 0 || v > 1<<32-1 {
		r.failed = true
		return 0
	}
	r.b = r.b[n:]
	return int(v)
}

// bytes skips bytes or a string.
func (r *reader) bytes() {
	if n := r.uvarint(); n > 1 {
		r.skip(n - 1)
	}
}

func (r *reader) array(each func()) {
	for n := r.uvarint() - 1; n > 0 && !r.failed; n-- {
		each()
	}
}

func (r *reader) tags() {
	for n := r.uvarint(); n > 0 && !r.failed; n-- {
		r.uvarint()
		r.skip(r.uvarint())
	}
}
