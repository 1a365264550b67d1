package gateway

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

// throughWalker sends a frame (with length prefix) through walk and returns what came out of the other side.
// trailing is sent behind the frame and must be left in the stream.
func throughWalker(tb testing.TB, frame []byte, size int64, walk func(*walker) error) ([]byte, error) {
	tb.Helper()
	const trailing = "next"
	in := &memConn{r: bytes.NewReader(append(slices.Clone(frame), trailing...))}
	out := &memConn{}
	src, dst := newStream(in, 64, 64, time.Minute), newStream(out, 64, 64, time.Minute)
	src.beforeRead = dst.w.Flush
	w := &walker{src: src, dst: dst, left: size}
	err := walk(w)
	if err == nil {
		if rest, _ := io.ReadAll(src.r); string(rest) != trailing {
			tb.Fatalf("behind the frame %q is left, want %q", rest, trailing)
		}
	}
	dst.w.Flush()
	return out.w.Bytes(), err
}

// memConn is a connection whose input is known and whose output is kept.
type memConn struct {
	net.Conn
	r *bytes.Reader
	w bytes.Buffer
}

func (c *memConn) Read(p []byte) (int, error)       { return c.r.Read(p) }
func (c *memConn) Write(p []byte) (int, error)      { return c.w.Write(p) }
func (c *memConn) SetWriteDeadline(time.Time) error { return nil }
func (c *memConn) SetReadDeadline(time.Time) error  { return nil }

func fetchWalk(w *walker) error {
	if err := w.pass(8); err != nil {
		return err
	}
	return walkFetch(w, 18)
}

func shareWalk(version int16) func(w *walker) error {
	return func(w *walker) error {
		if err := w.pass(8); err != nil {
			return err
		}
		return walkShareFetch(w, version)
	}
}

func fetchResponse(r *rand.Rand, brokers int) *kmsg.FetchResponse {
	resp := kmsg.NewPtrFetchResponse()
	resp.SetVersion(18)
	resp.SessionID = r.Int32()
	for range r.IntN(3) {
		t := kmsg.NewFetchResponseTopic()
		for i := range t.TopicID {
			t.TopicID[i] = byte(r.Uint32())
		}
		for i := range r.IntN(4) {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.HighWatermark = int32(i), r.Int64()
			switch r.IntN(3) {
			case 0:
				p.ErrorCode, p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = 6, 2, 7
			case 1:
				p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 5, FirstOffset: 9}}
			}
			if r.IntN(4) > 0 {
				p.RecordBatches = make([]byte, r.IntN(100_000))
				for i := range p.RecordBatches {
					p.RecordBatches[i] = byte(r.Uint32())
				}
			}
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	for i := range brokers {
		b := kmsg.NewFetchResponseBroker()
		b.NodeID, b.Host, b.Port = int32(i), "upstream.example", 9092
		resp.Brokers = append(resp.Brokers, b)
	}
	return resp
}

func TestFetchEndpointsAreBlankedInPlace(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		resp := fetchResponse(r, r.IntN(3))
		frame := wire.AppendResponse(nil, 42, resp)
		out, err := throughWalker(t, frame, int64(len(frame)), fetchWalk)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if len(out) != len(frame) {
			t.Fatalf("seed %d: %d bytes became %d", seed, len(frame), len(out))
		}
		if bytes.Contains(out, []byte("upstream.example")) && len(resp.Brokers) == 0 {
			t.Fatalf("seed %d: an address from nowhere", seed)
		}
		_, body, err := wire.ParseResponseHeader(fetch, 18, out[4:])
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseUpstream(fetch, 18, body)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		f := got.(*kmsg.FetchResponse)
		if len(f.Brokers) != 0 {
			t.Fatalf("seed %d: clients still see %v", seed, f.Brokers)
		}
		// Without what was blanked, both are the same.
		f.UnknownTags = kmsg.Tags{}
		resp.Brokers = nil
		if !bytes.Equal(f.AppendTo(nil), resp.AppendTo(nil)) {
			t.Fatalf("seed %d: more than the addresses changed", seed)
		}
	}
}

func TestFetchWithoutEndpointsPassesUnchanged(t *testing.T) {
	frame := wire.AppendResponse(nil, 1, fetchResponse(rand.New(rand.NewPCG(3, 3)), 0))
	out, err := throughWalker(t, frame, int64(len(frame)), fetchWalk)
	if err != nil || !bytes.Equal(out, frame) {
		t.Fatalf("%v; same bytes: %v", err, bytes.Equal(out, frame))
	}
}

func TestShareFetchEndpointsAreBlankedInPlace(t *testing.T) {
	for version := int16(0); version <= wire.MaxVersion(shareFetch); version++ {
		for _, endpoints := range []int{0, 1, 2, 5, 300, 3000} {
			resp := kmsg.NewPtrShareFetchResponse()
			resp.SetVersion(version)
			topic := kmsg.NewShareFetchResponseTopic()
			topic.TopicID = [16]byte{1, 2, 3}
			p := kmsg.NewShareFetchResponseTopicPartition()
			p.ErrorMessage, p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = kmsg.StringPtr("moved"), 2, 7
			p.Records = bytes.Repeat([]byte("r"), 70_000)
			p.AcquiredRecords = []kmsg.ShareFetchResponseTopicPartitionAcquiredRecord{{FirstOffset: 1, LastOffset: 2, DeliveryCount: 3}}
			topic.Partitions = append(topic.Partitions, p)
			resp.Topics = append(resp.Topics, topic)
			for i := range endpoints {
				e := kmsg.NewShareFetchResponseNodeEndpoint()
				e.NodeID, e.Host, e.Port = int32(i), "u", 9092
				if i%2 == 0 {
					e.Rack = kmsg.StringPtr("rack")
				}
				resp.NodeEndpoints = append(resp.NodeEndpoints, e)
			}
			resp.UnknownTags.Set(77, []byte("kept"))
			frame := wire.AppendResponse(nil, 42, resp)
			out, err := throughWalker(t, frame, int64(len(frame)), shareWalk(version))
			if err != nil {
				t.Fatalf("v%d, %d endpoints: %v", version, endpoints, err)
			}
			if len(out) != len(frame) {
				t.Fatalf("v%d, %d endpoints: %d bytes became %d", version, endpoints, len(frame), len(out))
			}
			_, body, _ := wire.ParseResponseHeader(shareFetch, version, out[4:])
			got, err := parseUpstream(shareFetch, version, body)
			if err != nil {
				t.Fatalf("v%d, %d endpoints: %v", version, endpoints, err)
			}
			s := got.(*kmsg.ShareFetchResponse)
			if len(s.NodeEndpoints) != 0 {
				t.Fatalf("v%d: clients still see %v", version, s.NodeEndpoints)
			}
			var kept []byte
			s.UnknownTags.Each(func(k uint32, v []byte) {
				if k == 77 {
					kept = v
				}
			})
			if string(kept) != "kept" {
				t.Fatalf("v%d, %d endpoints: a tag was lost", version, endpoints)
			}
			if !reflect.DeepEqual(s.Topics, resp.Topics) {
				t.Fatalf("v%d, %d endpoints: the topics changed", version, endpoints)
			}
		}
	}
}

func TestEveryRoomForBlankingIsFilledExactly(t *testing.T) {
	for hostBytes := range 400 { // crosses where the size of the padding takes a second byte
		rest := []byte{2, 0, 0, 0, 9}
		host := bytes.Repeat([]byte("h"), hostBytes)
		n := uint32(hostBytes + 1)
		for ; n >= 0x80; n >>= 7 {
			rest = append(rest, byte(n)|0x80)
		}
		rest = append(append(rest, byte(n)), host...)
		rest = append(rest, 0, 0, 0x23, 0x84, 0, 0, 0) // port, no rack, no tags; no top-level tags
		out, err := blankEndpoints(rest)
		if err != nil || len(out) != len(rest) {
			t.Fatalf("host of %d bytes: %d bytes became %d, %v", hostBytes, len(rest), len(out), err)
		}
		r := reader{b: out}
		r.array(func() { t.Fatal("an endpoint is left") })
		r.tags()
		if r.failed || len(r.b) != 0 {
			t.Fatalf("host of %d bytes: % x does not end where its fields do", hostBytes, out)
		}
	}
}

func produceRequest(version int16, topics ...string) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(version)
	req.Acks, req.TimeoutMillis = -1, 1000
	req.TransactionID = kmsg.StringPtr("txn")
	for _, name := range topics {
		t := kmsg.NewProduceRequestTopic()
		t.Topic = name
		copy(t.TopicID[:], name)
		for i := range int32(2) {
			p := kmsg.NewProduceRequestTopicPartition()
			p.Partition = i
			if i == 1 {
				p.Records = bytes.Repeat([]byte("x"), 50_000)
			}
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

func TestProduceToTheLogTopicIsBlanked(t *testing.T) {
	for version := int16(0); version <= wire.MaxVersion(produce); version++ {
		req := produceRequest(version, "a", "log", "b", "gol", "des")
		own := newOwnTopics("log", "des") // of the same length
		own[0].id.Store(new(req.Topics[1].TopicID))
		own[1].id.Store(new(req.Topics[4].TopicID))
		frame := wire.AppendRequest(nil, 7, kmsg.StringPtr("me"), req)
		h, err := wire.ParseHeader(frame[4:])
		if err != nil {
			t.Fatal(err)
		}
		var p produced
		out, err := throughWalker(t, frame, int64(len(frame)), func(w *walker) error {
			if err := w.pass(4 + int64(h.Size)); err != nil {
				return err
			}
			p, err = walkProduce(w, version, own)
			return err
		})
		if err != nil {
			t.Fatalf("v%d: %v", version, err)
		}
		if want := (produced{acks: -1, refused: true}); p != want {
			t.Fatalf("v%d: %+v, want %+v", version, p, want)
		}
		if version >= produceIDVersion {
			req.Topics[1].TopicID, req.Topics[4].TopicID = own[0].blankID, own[1].blankID
		} else {
			req.Topics[1].Topic, req.Topics[4].Topic = "///", ":::"
		}
		if want := wire.AppendRequest(nil, 7, kmsg.StringPtr("me"), req); !bytes.Equal(out, want) {
			t.Fatalf("v%d: more than the topic changed", version)
		}
	}
}

// FuzzWalk feeds the walkers frames that lie about their insides. Whatever they claim, a walker passes at most the
// frame, never panics, and says so where the fields do not fill it.
func FuzzWalk(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 6 {
		resp := fetchResponse(r, i%3)
		for t := range resp.Topics {
			for p := range resp.Topics[t].Partitions {
				b := &resp.Topics[t].Partitions[p].RecordBatches
				*b = (*b)[:min(len(*b), 40)]
			}
		}
		f.Add(uint8(0), wire.AppendResponse(nil, 1, resp))
	}
	share := kmsg.NewPtrShareFetchResponse()
	share.SetVersion(1)
	share.NodeEndpoints = make([]kmsg.ShareFetchResponseNodeEndpoint, 2)
	f.Add(uint8(1), wire.AppendResponse(nil, 1, share))
	for _, v := range []int16{3, 9, 13} {
		req := produceRequest(v, "a", "log")
		req.Topics[0].Partitions[1].Records = []byte("few")
		req.Topics[1].Partitions[1].Records = []byte("few")
		f.Add(uint8(2+v), wire.AppendRequest(nil, 1, nil, req))
	}
	prod := kmsg.NewPtrProduceResponse()
	prod.SetVersion(13)
	prod.Brokers = make([]kmsg.ProduceResponseBroker, 1)
	f.Add(uint8(1), wire.AppendResponse(nil, 1, prod))
	f.Fuzz(func(t *testing.T, kind uint8, frame []byte) {
		if len(frame) < 12 {
			return
		}
		walk := fetchWalk
		switch {
		case kind == 255: // topic names
			walk = func(w *walker) error {
				if err := w.pass(8); err != nil {
					return err
				}
				return walkFetch(w, 12)
			}
		case kind == 1:
			walk = shareWalk(1)
		case kind >= 2:
			walk = func(w *walker) error {
				if err := w.pass(12); err != nil {
					return err
				}
				own := newOwnTopics("log", "description")
				own[0].id.Store(&[16]byte{'l', 'o', 'g'})
				_, err := walkProduce(w, int16(kind-2)%14, own)
				return err
			}
		}
		out, err := throughWalker(t, frame, int64(len(frame)), walk)
		if err == nil && len(out) != len(frame) {
			t.Fatalf("%d bytes became %d", len(frame), len(out))
		}
		if len(out) > len(frame) {
			t.Fatalf("%d bytes became %d: more than the frame", len(frame), len(out))
		}
		if err != nil && !errors.Is(err, errWalk) {
			t.Fatalf("unexpected error %v", err)
		}
		if len(frame) > 4 {
			produceHasEndpoints(frame[4:], 13) // must not panic
		}
	})
}
