package eventlog

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

func TestBatchBytes(t *testing.T) {
	got := appendBatch(nil, 0x0102030405060708, 9, 10, []operation{
		{1000, []Raw{{Key: []byte("k"), Value: []byte("v")}}},
		{900, []Raw{{Key: []byte("t")}}},
	})
	want := "0000000000000000" + "00000043" + "ffffffff" + "02" + "********" + "0000" + "00000001" + // up to the last offset delta
		"00000000000003e8" + "00000000000003e8" + "0102030405060708" + "0009" + "0000000a" + "00000002" +
		"10" + "00" + "00" + "00" + "02" + "6b" + "02" + "76" + "00" +
		"10" + "00" + "c701" + "02" + "02" + "74" + "01" + "00"
	h := hex.EncodeToString(got)
	if h[:34]+"********"+h[42:] != want {
		t.Fatalf("\n got %s\nwant %s", h, want)
	}
	var b kmsg.RecordBatch
	if err := b.ReadFrom(got); err != nil || int(b.Length) != len(got)-12 {
		t.Fatalf("%+v, %v", b, err)
	}
}

func TestSequenceWraps(t *testing.T) {
	for _, test := range []struct {
		sequence int32
		n        int
		want     int32
	}{{0, 1, 1}, {math.MaxInt32, 1, 0}, {math.MaxInt32 - 1, 1, math.MaxInt32}, {math.MaxInt32 - 1, 5, 3}} {
		if got := nextSequence(test.sequence, test.n); got != test.want {
			t.Errorf("%d more than %d is %d, want %d", test.n, test.sequence, got, test.want)
		}
	}
}

// TestBatchesAreReadBack: what is written is read, the size is within its bound, and the bound is close.
func TestBatchesAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 300))
		raw := rapid.Custom(func(t *rapid.T) Raw {
			return Raw{Key: rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "key"), Value: value.Draw(t, "value")}
		})
		ops := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) operation {
			return operation{rapid.Int64Range(0, 1<<50).Draw(t, "time"), rapid.SliceOfN(raw, 1, 5).Draw(t, "records")}
		}), 1, 5).Draw(t, "operations")
		b := appendBatch([]byte("before")[:0:0], 7, 3, 5, ops)
		bound, n := batchOverhead, 0
		for _, op := range ops {
			bound += recordsSizeMax(op.recs)
			n += len(op.recs)
		}
		if len(b) > bound || len(b) < bound-20*n {
			t.Fatalf("%d bytes, bound %d, %d records", len(b), bound, n)
		}
		from := rapid.Int64Range(0, int64(n)).Draw(t, "from")
		c, err := decodeBatches(b, from, decompressor)
		if err != nil || c.next != int64(n) && from < int64(n) {
			t.Fatalf("%+v, %v", c, err)
		}
		offset := int64(0)
		for _, op := range ops {
			for _, r := range op.recs {
				if offset >= from {
					e := c.entries[offset-from]
					if e.Offset != offset || e.Timestamp != op.timestamp || e.ProducerID != 7 || e.ProducerEpoch != 3 || !bytes.Equal(e.Key, r.Key) || !bytes.Equal(e.Value, r.Value) || (e.Value == nil) != (r.Value == nil) {
						t.Fatalf("%+v, want %+v at %d", e, r, offset)
					}
				}
				offset++
			}
		}
	})
}

func TestDamagedBatchesAreErrors(t *testing.T) {
	good := appendBatch(nil, 7, 3, 5, []operation{{1, []Raw{kv("a", "1"), kv("b", "2")}}})
	change := func(at int, to ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], to)
		return b
	}
	for _, test := range []struct {
		name string
		b    []byte
		read int // entries
		bad  bool
	}{
		{"sound", good, 2, false},
		{"nothing", nil, 0, false},
		{"cut short", good[:len(good)-1], 0, false},
		{"cut short behind a sound one", append(bytes.Clone(good), good[:70]...), 2, false},
		{"old format", change(16, 1), 0, true},
		{"checksum", change(17, 0, 0, 0, 0), 0, true},
		{"content", change(len(good)-1, 9), 0, true},
		{"negative length", change(8, 0xff), 0, true},
		{"tiny length", change(8, 0, 0, 0, 10), 0, true},
		{"damaged behind a sound one", append(bytes.Clone(good), change(16, 1)...), 2, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := decodeBatches(test.b, 0, decompressor)
			if len(c.entries) != test.read || (err != nil) != test.bad || test.bad && !errors.Is(err, errBatch) {
				t.Fatalf("%d entries, %v", len(c.entries), err)
			}
		})
	}
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add(appendRecord(nil, 5, 6, kv("key", "value")))
	f.Add([]byte{0x10, 0, 0, 0, 2, 'k', 2, 'v', 0xfe})
	f.Fuzz(func(t *testing.T, b []byte) {
		var e Entry
		rest, err := decodeRecord(b, 0, &e)
		if err == nil && len(rest) >= len(b) {
			t.Fatalf("%d bytes left of %d", len(rest), len(b))
		}
	})
}
