package plugin

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
)

func small() *Description {
	return &Description{
		Subtopologies: []Subtopology{{ID: "0", Nodes: []Node{
			{Name: "s", Type: NodeSource, SourceTopics: []string{"t"}, Successors: []string{"p"}},
			{Name: "p", Type: NodeProcessor, Stores: []string{"x"}, Successors: []string{"k"}},
			{Name: "k", Type: NodeSink, SinkTopic: text("t")},
			{Name: "k", Type: NodeSink},
		}}},
		GlobalStores: []GlobalStore{{Source: node(NodeSource, "s"), Processor: node(NodeProcessor, "p")}},
	}
}

// TestBinaryFormat pins the bytes: what is stored must stay readable.
func TestBinaryFormat(t *testing.T) {
	body := strings.ReplaceAll("06 0130 0173 0170 0174 016b 0178"+ // strings: 0 s p t k x
		" 01 00 04"+ // a subtopology, "0", 4 nodes
		" 01 01 0102 0103"+ // source s, successors p, topics t
		" 02 02 0104 0105"+ // processor p, successors k, stores x
		" 03 04 00 04"+ // sink k, no successors, topic 1+t
		" 03 04 00 00"+ // sink k, computed
		" 01 01010000 02020000", " ", "") // a global store: source s, processor p
	raw, err := hex.DecodeString(body)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := encodeBody(small()); err != nil || hex.EncodeToString(got) != body {
		t.Errorf("got  %x (%v)\nwant %s", got, err, body)
	}
	for name, stored := range map[string]string{
		"plain":      fmt.Sprintf("0100%02x%08x%s", len(raw), crc32.Checksum(raw, castagnoli), body),
		"compressed": "01012de99c26b904c0b111803014c350c9df300f7bd170478a8c9f77fbf8fbb97cdd52354e62bda6740a2a2470020000ffff", // as written in 2026
	} {
		b, err := hex.DecodeString(stored)
		if err != nil {
			t.Fatal(err)
		}
		if d, err := DecodeBinary(b); err != nil || !d.Equal(small()) {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
}

// TestBinaryCompresses: a topology repeats itself; the limit of a record is for the compressed form.
func TestBinaryCompresses(t *testing.T) {
	d := &Description{Subtopologies: []Subtopology{{ID: "0"}}}
	for i := range 10_000 {
		d.Subtopologies[0].Nodes = append(d.Subtopologies[0].Nodes, Node{
			Name: fmt.Sprintf("KSTREAM-MAPVALUES-%010d", i), Type: NodeProcessor, Successors: []string{fmt.Sprintf("KSTREAM-MAPVALUES-%010d", i+1)},
		})
	}
	b, err := EncodeBinary(d, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	j, _ := d.MarshalJSON()
	if len(b) > len(j)/10 {
		t.Errorf("%d bytes, of %d as JSON", len(b), len(j))
	}
	if back, err := DecodeBinary(b); err != nil || !back.Equal(d) {
		t.Error("it does not come back", err)
	}
	_, err = EncodeBinary(d, len(b)-1)
	large, ok := errors.AsType[*TooLargeError](err)
	if !ok || large.Bytes != len(b) || large.BytesMax != len(b)-1 || !IsPermanent(err) {
		t.Errorf("one byte less: %v", err)
	}
	if _, err := EncodeBinary(d, len(b)); err != nil {
		t.Errorf("just fits: %v", err)
	}
}

func TestBinaryRefusesUnknownTypes(t *testing.T) {
	_, err := EncodeBinary(&Description{Subtopologies: []Subtopology{{Nodes: []Node{{Type: 4}}}}}, 1000)
	if _, ok := errors.AsType[*InvalidDescriptionError](err); !ok {
		t.Errorf("%v", err)
	}
}

// framed is a plain frame around a body.
func framed(body []byte) []byte {
	b := binary.AppendUvarint([]byte{binaryVersion, codingPlain}, uint64(len(body)))
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(body, castagnoli))
	return append(b, body...)
}

func TestBinaryDamage(t *testing.T) {
	good, err := EncodeBinary(small(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	for n := range good {
		if _, err := DecodeBinary(good[:n]); err == nil {
			t.Errorf("cut to %d of %d bytes: no error", n, len(good))
		}
	}
	for i := range good {
		for bit := range 8 {
			bad := append([]byte(nil), good...)
			bad[i] ^= 1 << bit
			// The last bits of a DEFLATE stream are padding, which says nothing.
			if d, err := DecodeBinary(bad); err == nil && !d.Equal(small()) {
				t.Errorf("bit %d of byte %d flipped: %+v", bit, i, d)
			}
		}
	}
	huge := binary.AppendUvarint([]byte{binaryVersion, codingDeflate}, 1<<40)
	deflated, err := deflate(make([]byte, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	bomb := append(binary.BigEndian.AppendUint32(binary.AppendUvarint([]byte{binaryVersion, codingDeflate}, 10), 0), deflated...)
	for _, c := range []struct {
		name, want string
		in         []byte
	}{
		{"nothing", "of 0 bytes: too short for its header", nil},
		{"version 2", "format version 2; this program reads version 1", append([]byte{2}, good[1:]...)},
		{"coding 7", "unknown coding 7", append([]byte{1, 7}, good[2:]...)},
		{"absurd length", "more than any description has", append(huge, 0, 0, 0, 0)},
		{"a length that never ends", "header is cut off or damaged", append([]byte{1, 0}, []byte(strings.Repeat("\xff", 20))...)},
		{"a bomb", "more bytes than the 10 of its header", bomb},
		{"no deflate", "decompress", []byte{1, 1, 3, 0, 0, 0, 0, 0xff, 0xff, 0xff}},
		{"bytes behind the body", "2 bytes too many behind its body", append(append([]byte(nil), good...), 0, 0)},
		{"trailing bytes", "2 bytes too many in its body", framed([]byte{0, 0, 0, 9, 9})},
		{"more strings than bytes", "ends too early", framed([]byte{0xff, 0xff, 0xff, 0xff, 0x7f, 1})},
		{"unknown string", "string 5 of 1", framed([]byte{1, 1, 'a', 1, 5, 0, 0})},
		{"unknown type", "Unknown topology node type: 9", framed([]byte{1, 1, 'a', 1, 0, 1, 9, 0, 0, 0})},
		{"global store of sinks", "Global store must be composed", framed([]byte{1, 1, 'a', 0, 1, 3, 0, 0, 0, 3, 0, 0, 0})},
	} {
		if d, err := DecodeBinary(c.in); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v, want %q", c.name, d, err, c.want)
		}
	}
}

func FuzzDecodeBinary(f *testing.F) {
	for _, p := range pushes(f) {
		d := p.fromWire(f)
		b, err := EncodeBinary(d, 1<<20)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		body, err := encodeBody(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(framed(body))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, b := range [][]byte{in, framed(in)} { // the second gets past the checksum
			d, err := DecodeBinary(b)
			if err != nil {
				continue
			}
			again, err := EncodeBinary(d, 1<<30)
			if err != nil {
				t.Fatalf("decoded, but can't be encoded: %v", err)
			}
			if back, err := DecodeBinary(again); err != nil || !back.Equal(d) {
				t.Fatalf("%+v becomes %+v, %v", d, back, err)
			}
		}
	})
}

func FuzzDecodeJSON(f *testing.F) {
	for _, p := range pushes(f) {
		f.Add([]byte(p.Description))
	}
	f.Add([]byte(`{"subtopologies":[{"id":"0","nodes":[{"type":"sink","name":"\ud800","topic":null}]}]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var d Description
		if json.Unmarshal(in, &d) != nil {
			return
		}
		if err := d.Validate(); err != nil {
			t.Fatalf("decoded, but not valid: %v", err)
		}
		if !d.Normalize().Equal(&d) {
			t.Fatalf("decoded, but not normal: %+v", d)
		}
		out, err := d.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var back Description
		if err := json.Unmarshal(out, &back); err != nil || !back.Equal(&d) {
			t.Fatalf("%s becomes %+v, %v", out, back, err)
		}
	})
}

func BenchmarkBinary(b *testing.B) {
	d := pushes(b)[7].fromWire(b)
	enc, err := EncodeBinary(d, 1<<20)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := EncodeBinary(d, 1<<20); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeBinary(enc); err != nil {
				b.Fatal(err)
			}
		}
	})
}
