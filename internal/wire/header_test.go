package wire

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestParseHeader(t *testing.T) {
	id := func(s string) *string { return &s }
	for _, c := range []struct {
		name  string
		bytes string
		want  Header
		err   string // part of it
	}{
		{"v1", "\x00\x03\x00\x08\x00\x00\x00\x07\x00\x02meBODY", Header{3, 8, 7, id("me"), 12}, ""},
		{"v2, no tags", "\x00\x03\x00\x09\x00\x00\x00\x07\x00\x02me\x00BODY", Header{3, 9, 7, id("me"), 13}, ""},
		{"v2, two tags", "\x00\x03\x00\x09\xff\xff\xff\xff\x00\x00\x02\x00\x03abc\x81\x01\x00BODY", Header{3, 9, -1, id(""), 19}, ""},
		{"null client id", "\x00\x03\x00\x08\x00\x00\x00\x07\xff\xffBODY", Header{3, 8, 7, nil, 10}, ""},
		{"v0: ControlledShutdown", "\x00\x07\x00\x00\x00\x00\x00\x07", Header{7, 0, 7, nil, 8}, ""},
		{"ControlledShutdown v1", "\x00\x07\x00\x01\x00\x00\x00\x07\xff\xff", Header{7, 1, 7, nil, 10}, ""},
		{"ApiVersions of the future is flexible", "\x00\x12\x00\x63\x00\x00\x00\x07\x00\x00\x00", Header{18, 99, 7, id(""), 11}, ""},
		{"SaslHandshake never is", "\x00\x11\x00\x01\x00\x00\x00\x07\x00\x00\x00", Header{17, 1, 7, id(""), 10}, ""},

		{"empty", "", Header{}, "key, version and correlation id"},
		{"unknown key", "\x01\x00\x00\x02\x00\x00\x00\x07\x00\x00", Header{Key: 256, Version: 2, CorrelationID: 7, Size: 8}, "unknown API key 256 (version 2)"},
		{"negative key", "\xff\xff\x00\x02\x00\x00\x00\x07\x00\x00", Header{Key: -1, Version: 2, CorrelationID: 7, Size: 8}, "unknown API key -1"},
		{"negative version", "\x00\x03\xff\xff\x00\x00\x00\x07\x00\x00", Header{Key: 3, Version: -1, CorrelationID: 7, Size: 8}, "malformed header: version: -1 is negative (key 3)"},
		{"negative client id", "\x00\x03\x00\x08\x00\x00\x00\x07\xff\xfe", Header{Key: 3, Version: 8, CorrelationID: 7, Size: 10}, "length of the client id: -2 is negative"},
		{"client id cut", "\x00\x03\x00\x08\x00\x00\x00\x07\x00\x03me", Header{Key: 3, Version: 8, CorrelationID: 7, Size: 10}, "client id: the bytes end too early (2 of 3 bytes)"},
		{"no tags", "\x00\x03\x00\x09\x00\x00\x00\x07\x00\x00", Header{3, 9, 7, id(""), 10}, "tags: the bytes end too early"},
		{"tag cut", "\x00\x03\x00\x09\x00\x00\x00\x07\x00\x00\x01\x00\x03ab", Header{3, 9, 7, id(""), 10}, "tags: the bytes end too early (2 of 3 bytes of a tag)"},
		{"tag of 4 GiB", "\x00\x03\x00\x09\x00\x00\x00\x07\x00\x00\x01\x00\xff\xff\xff\xff\x0f", Header{3, 9, 7, id(""), 10}, "too early"},
		{"4 billion tags", "\x00\x03\x00\x09\x00\x00\x00\x07\x00\x00\xff\xff\xff\xff\x0f", Header{3, 9, 7, id(""), 10}, "too early"},
		{"varint without end", "\x00\x03\x00\x09\x00\x00\x00\x07\x00\x00\xff\xff\xff\xff\xff\xff", Header{3, 9, 7, id(""), 10}, "a varint exceeds 32 bits"},
		{"varint above 32 bits", "\x00\x03\x00\x09\x00\x00\x00\x07\x00\x00\xff\xff\xff\xff\x1f", Header{3, 9, 7, id(""), 10}, "a varint exceeds 32 bits"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseHeader([]byte(c.bytes))
			if c.err == "" {
				if err != nil || !reflect.DeepEqual(got, c.want) {
					t.Fatalf("%+v, %v; want %+v", got, err, c.want)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Fatalf("error %v, want one with %q", err, c.err)
			}
			if IsTruncated(err) != strings.Contains(err.Error(), "too early") {
				t.Errorf("truncated %v for %v", IsTruncated(err), err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("header %+v, want what could be read: %+v", got, c.want)
			}
		})
	}
}

func TestAppendHeaderIsParsedBack(t *testing.T) {
	me := "me"
	for _, h := range []Header{{Key: 3, Version: 8, CorrelationID: 7, ClientID: &me}, {Key: 3, Version: 9, CorrelationID: -1}, {Key: 7, Version: 0, CorrelationID: 1}, {Key: 88, Version: 1, ClientID: &me}} {
		b := AppendHeader(nil, h)
		h.Size = len(b)
		if got, err := ParseHeader(b); err != nil || !reflect.DeepEqual(got, h) {
			t.Errorf("%+v, %v; want %+v", got, err, h)
		}
	}
	long := strings.Repeat("x", 40_000)
	if got, err := ParseHeader(AppendHeader(nil, Header{Key: 3, Version: 8, ClientID: &long})); err != nil || len(*got.ClientID) != 1<<15-1 {
		t.Errorf("a client id beyond the format: %v", err)
	}
}

func TestApiVersionsKeepsTheOldResponseHeader(t *testing.T) {
	for _, c := range []struct {
		key, version int16
		want         string
	}{
		{18, 0, "\x00\x00\x00\x07"}, {18, 3, "\x00\x00\x00\x07"}, {18, 5, "\x00\x00\x00\x07"},
		{3, 8, "\x00\x00\x00\x07"}, {3, 9, "\x00\x00\x00\x07\x00"}, {88, 0, "\x00\x00\x00\x07\x00"}, {17, 1, "\x00\x00\x00\x07"},
	} {
		if got := string(AppendResponseHeader(nil, c.key, c.version, 7)); got != c.want {
			t.Errorf("key %d version %d: %x, want %x", c.key, c.version, got, c.want)
		}
		corr, body, err := ParseResponseHeader(c.key, c.version, []byte(c.want+"body"))
		if err != nil || corr != 7 || string(body) != "body" {
			t.Errorf("key %d version %d: %d %q %v", c.key, c.version, corr, body, err)
		}
		if _, _, err := ParseResponseHeader(c.key, c.version, []byte(c.want[:len(c.want)-1])); !IsTruncated(err) {
			t.Errorf("key %d version %d, cut: %v", c.key, c.version, err)
		}
	}
}

func TestParseRequestRefusals(t *testing.T) {
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Version = 9
	body := metadata.AppendTo(nil)
	for _, c := range []struct {
		name         string
		key, version int16
		body         []byte
		is           error
		text         string
	}{
		{"unknown key", 1000, 0, nil, nil, "unknown API key 1000 (version 0)"},
		{"negative key", -1, 0, nil, nil, "unknown API key -1"},
		{"version too new", 3, 99, nil, nil, "Metadata (key 3) version 99 is not supported, only 0 to"},
		{"negative version", 3, -1, nil, nil, "version -1 is not supported"},
		{"truncated", 3, 9, body[:len(body)-1], ErrTruncated, "malformed Metadata request version 9 (key 3, "},
		{"empty", 3, 9, nil, ErrTruncated, "0 bytes): the bytes end too early"},
		{"trailing", 3, 9, append(body[:len(body):len(body)], 0), ErrTrailing, "bytes are left after the end of the message"},
		{"too large", 3, 9, make([]byte, DecodeBytesMax+1), ErrBodyTooLarge, "exceeds the 8388608 bytes"},
		{"array of 2 billion", 3, 8, []byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0}, ErrTruncated, "too early"},
		{"array of 2 billion, compact", 3, 9, []byte{0xff, 0xff, 0xff, 0xff, 0x07, 0, 0, 0}, ErrTruncated, "too early"},
	} {
		t.Run(c.name, func(t *testing.T) {
			req, err := ParseRequest(c.key, c.version, c.body)
			if req != nil || err == nil || !strings.Contains(err.Error(), c.text) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v, error %v; want one with %q", req, err, c.text)
			}
		})
	}
	if _, err := ParseResponse(3, 9, nil); err == nil || !strings.Contains(err.Error(), "malformed Metadata response version 9") {
		t.Errorf("%v", err)
	}
}

// Legal encodings that nobody writes are told apart from trailing bytes.
func TestUnusualEncodingsAreNoTrailingBytes(t *testing.T) {
	for name, body := range map[string]string{
		"padded varint":                 "\x80\x00\x00\x00\x00\x00", // null topics in two bytes
		"unknown tag":                   "\x00\x00\x00\x00\x01\x7f\x02ab",
		"true written as a seven":       "\x00\x07\x00\x00\x00",
		"unknown tags in falling order": "\x00\x00\x00\x00\x02\x7f\x00\x7e\x00",
	} {
		if _, err := ParseRequest(3, 9, []byte(body)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := ParseRequest(3, 9, []byte(body+"\x00")); !errors.Is(err, ErrTrailing) {
			t.Errorf("%s and a byte more: %v", name, err)
		}
	}
}
