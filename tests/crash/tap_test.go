package crash

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/internal/wire"
)

// step is something that a replica does at the cluster or at the plugin's service.
type step struct {
	what  string // marker, stored, nothing stored, tombstone, frozen, taken over: in the log; call: of the plugin; … at the cluster
	group string
	by    string // who: the client id, or the replica's part of the address
}

// errKilled ends a connection whose replica was killed.
var errKilled = errors.New("the replica was killed")

// tap makes listeners for the cluster whose connections tell of steps: before they have an effect, and after that before the answer is
// out. Where the function returns false the connection ends on the spot.
type tap struct {
	topic  string // of the log
	before func(step) bool
	after  func(step) bool
}

func (t *tap) listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	return tappedListener{l, t}, nil
}

type tappedListener struct {
	net.Listener
	tap *tap
}

func (l tappedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tappedConn{Conn: c, tap: l.tap, due: map[int32][]step{}}, nil
}

// tappedConn hands requests and answers on frame by frame.
type tappedConn struct {
	net.Conn
	tap *tap
	in  []byte // the rest of a request that was read whole
	out []byte // the beginning of an answer

	mu  sync.Mutex
	due map[int32][]step // steps whose answer is due, by correlation id
}

// requestBytesMax bounds a request of a test.
const requestBytesMax = 16 << 20

func (c *tappedConn) Read(b []byte) (int, error) {
	if len(c.in) == 0 {
		frame := make([]byte, 4)
		if _, err := io.ReadFull(c.Conn, frame); err != nil {
			return 0, err
		}
		n := binary.BigEndian.Uint32(frame)
		if n > requestBytesMax {
			return 0, errors.New("a request that is too large for a test")
		}
		frame = append(frame, make([]byte, n)...)
		if _, err := io.ReadFull(c.Conn, frame[4:]); err != nil {
			return 0, err
		}
		if err := c.request(frame[4:]); err != nil {
			return 0, err
		}
		c.in = frame
	}
	n := copy(b, c.in)
	c.in = c.in[n:]
	return n, nil
}

// request looks at one request.
func (c *tappedConn) request(frame []byte) error {
	h, err := wire.ParseHeader(frame)
	if err != nil {
		return err
	}
	var steps []step
	switch h.Key {
	case 0, 8, 42: // Produce, OffsetCommit, DeleteGroups
		req, err := wire.ParseRequest(h.Key, h.Version, frame[h.Size:])
		if err != nil {
			return err
		}
		steps = c.tap.steps(req)
	}
	for i := range steps {
		if h.ClientID != nil {
			steps[i].by = *h.ClientID
		}
		if !c.tap.before(steps[i]) {
			c.Conn.Close()
			return errKilled
		}
	}
	if len(steps) > 0 {
		c.mu.Lock()
		c.due[h.CorrelationID] = steps
		c.mu.Unlock()
	}
	return nil
}

// Write passes answers on when they are whole.
func (c *tappedConn) Write(b []byte) (int, error) {
	c.out = append(c.out, b...)
	for len(c.out) >= 8 {
		n := int(binary.BigEndian.Uint32(c.out)) + 4
		if len(c.out) < n {
			break
		}
		c.mu.Lock()
		id := int32(binary.BigEndian.Uint32(c.out[4:]))
		steps := c.due[id]
		delete(c.due, id)
		c.mu.Unlock()
		for _, s := range steps {
			if !c.tap.after(s) {
				c.Conn.Close()
				return 0, errKilled
			}
		}
		if _, err := c.Conn.Write(c.out[:n]); err != nil {
			return 0, err
		}
		c.out = c.out[n:]
	}
	return len(b), nil
}

// steps are what a request does.
func (t *tap) steps(req kmsg.Request) []step {
	var steps []step
	switch r := req.(type) {
	case *kmsg.OffsetCommitRequest:
		steps = append(steps, step{what: "commit at the cluster", group: r.Group})
	case *kmsg.DeleteGroupsRequest:
		for _, g := range r.Groups {
			steps = append(steps, step{what: "deletion at the cluster", group: g})
		}
	case *kmsg.ProduceRequest:
		for _, topic := range r.Topics {
			for _, p := range topic.Partitions {
				steps = append(steps, logSteps(p.Records)...)
			}
		}
	}
	return steps
}

// logSteps are what the records of a batch say of groups, or do with descriptions. Those of other topics say nothing: their keys are none of ours.
func logSteps(records []byte) []step {
	var batch kmsg.RecordBatch
	if batch.ReadFrom(records) != nil || batch.Attributes&7 != 0 { // neither the log nor descriptions are compressed here
		return nil
	}
	var steps []step
	rest := batch.Records
	for len(rest) > 0 {
		n, size := binary.Varint(rest)
		end := size + int(n)
		if size <= 0 || n <= 0 || end > len(rest) {
			return nil
		}
		var r kmsg.Record
		if r.ReadFrom(rest[:end]) != nil {
			return nil
		}
		rest = rest[end:]
		if k, ok := describedGroup(r.Key); ok {
			steps = append(steps, step{what: "call", group: *k.Group})
			continue
		}
		record, err := eventlog.Decode(eventlog.Raw{Key: r.Key, Value: r.Value})
		if err != nil || record.Key.Type != eventlog.TypeGroup {
			continue
		}
		steps = append(steps, step{what: groupStep(record), group: record.Key.Group})
	}
	return steps
}

// groupStep says what a group's own record says of it.
func groupStep(r eventlog.Record) string {
	v, ok := r.Value.(*eventlog.Group)
	switch {
	case !ok:
		return "tombstone"
	case v.Conversion == eventlog.ConversionTaken:
		return "taken over"
	case v.Conversion != eventlog.ConversionNone:
		return "frozen"
	case v.StoredDescriptionTopologyEpoch == eventlog.EpochUncertain:
		return "marker"
	case v.StoredDescriptionTopologyEpoch == eventlog.EpochNone:
		return "nothing stored"
	}
	return "stored"
}
