package wire

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// captured is a frame between a real client and a real broker, as testdata/wire-*.jsonl.gz hold them.
type captured struct {
	Dir        string // "req" or "resp"
	APIKey     int16
	APIVersion int16
	Corr       int32
	ClientID   *string
	Hex        string

	frame []byte
}

func readCaptures(tb testing.TB) []captured {
	tb.Helper()
	files, err := filepath.Glob("testdata/wire-*.jsonl.gz")
	if err != nil || len(files) != 6 {
		tb.Fatalf("captures: %v, %v; want 6 files", files, err)
	}
	var all []captured
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			tb.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			tb.Fatalf("%s: %v", file, err)
		}
		lines := bufio.NewScanner(z)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			var c captured
			if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
				tb.Fatalf("%s: %v", file, err)
			}
			if c.frame, err = hex.DecodeString(c.Hex); err != nil {
				tb.Fatalf("%s: %v", file, err)
			}
			all = append(all, c)
		}
		if err := lines.Err(); err != nil {
			tb.Fatalf("%s: %v", file, err)
		}
	}
	return all
}

func TestCapturedFramesSurviveDecodingAndEncoding(t *testing.T) {
	type kind struct {
		dir          string
		key, version int16
	}
	seen := map[kind]int{}
	for _, c := range readCaptures(t) {
		seen[kind{c.Dir, c.APIKey, c.APIVersion}]++
		var encoded []byte
		if c.Dir == "req" {
			h, err := ParseHeader(c.frame)
			if err != nil {
				t.Fatalf("%+v: %v", c, err)
			}
			if h.Key != c.APIKey || h.Version != c.APIVersion || h.CorrelationID != c.Corr || *h.ClientID != *c.ClientID {
				t.Fatalf("header %+v of %+v", h, c)
			}
			for short := range h.Size {
				if _, err := ParseHeader(c.frame[:short]); !IsTruncated(err) {
					t.Fatalf("header cut to %d of %d bytes: error %v, want truncated", short, h.Size, err)
				}
			}
			req, err := ParseRequest(h.Key, h.Version, c.frame[h.Size:])
			if err != nil {
				t.Fatalf("%s: %v", c.Hex, err)
			}
			encoded = AppendRequest(nil, h.CorrelationID, h.ClientID, req)
			checkEnds(t, c.frame[h.Size:], func(b []byte) error { _, err := ParseRequest(h.Key, h.Version, b); return err })
		} else {
			version := c.APIVersion
			if c.APIKey == 18 && len(c.frame) > 6 && bytes.Equal(c.frame[4:6], []byte{0, 35}) {
				version = 0 // the answer to a version that the broker does not know
			}
			corr, body, err := ParseResponseHeader(c.APIKey, version, c.frame)
			if err != nil || corr != c.Corr {
				t.Fatalf("%+v: correlation id %d, %v", c, corr, err)
			}
			resp, err := ParseResponse(c.APIKey, version, body)
			if err != nil {
				t.Fatalf("%s: %v", c.Hex, err)
			}
			encoded = AppendResponse(nil, corr, resp)
			checkEnds(t, body, func(b []byte) error { _, err := ParseResponse(c.APIKey, version, b); return err })
		}
		if n, err := CheckLength([4]byte(encoded), FrameBytesMin, FrameBytesMax); err != nil || n != len(encoded)-4 {
			t.Fatalf("length prefix %d of %d bytes: %v", n, len(encoded)-4, err)
		}
		if !bytes.Equal(encoded[4:], c.frame) {
			t.Errorf("%s key %d version %d:\n got %x\nwant %x", c.Dir, c.APIKey, c.APIVersion, encoded[4:], c.frame)
		}
	}
	if len(seen) < 40 {
		t.Errorf("only %d kinds of frames in the captures", len(seen))
	}
	for _, k := range []kind{{"req", 88, 1}, {"resp", 88, 1}, {"req", 88, 0}, {"resp", 89, 1}, {"req", 8, 10}, {"resp", 9, 10}, {"resp", 18, 5}} {
		if seen[k] == 0 {
			t.Errorf("no frame %+v in the captures", k)
		}
	}
}

// checkEnds: neither a byte more nor a byte less than the body is accepted.
func checkEnds(t *testing.T, body []byte, parse func([]byte) error) {
	t.Helper()
	if err := parse(append(bytes.Clone(body), 0)); !errors.Is(err, ErrTrailing) {
		t.Errorf("a byte too many: error %v, want %v", err, ErrTrailing)
	}
	if len(body) > 0 {
		if err := parse(body[:len(body)-1]); !errors.Is(err, ErrTruncated) {
			t.Errorf("a byte too few: error %v, want %v", err, ErrTruncated)
		}
	}
}

func TestFlexibleVersionsAreKmsgs(t *testing.T) {
	known := 0
	for key := int16(-2); key < 200; key++ {
		req := kmsg.RequestForKey(key)
		if Known(key) != (req != nil) {
			t.Errorf("key %d: known %v", key, Known(key))
		}
		if req == nil {
			if IsFlexible(key, 0) || IsFlexible(key, 99) || MaxVersion(key) != -1 {
				t.Errorf("unknown key %d has versions", key)
			}
			continue
		}
		known++
		if MaxVersion(key) != req.MaxVersion() {
			t.Errorf("key %d: highest version %d, want %d", key, MaxVersion(key), req.MaxVersion())
		}
		for v := range req.MaxVersion() + 5 {
			if req.SetVersion(v); IsFlexible(key, v) != req.IsFlexible() {
				t.Errorf("key %d version %d: flexible %v, want %v", key, v, IsFlexible(key, v), req.IsFlexible())
			}
		}
	}
	if known < 80 {
		t.Errorf("only %d keys are known", known)
	}
}
