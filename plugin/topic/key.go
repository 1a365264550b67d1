package topic

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// The key of a record is JSON, so that it can be read with a console consumer:
//
//	{"v":1,"group":"orders","epoch":3}
//	{"v":1,"groupBase64":"/2E=","epoch":3}    a group id that is no valid UTF-8
//
// The value is the plugin's binary form (package plugin), or nothing: a tombstone. Compaction goes by the bytes of a key, so there is one
// spelling only: these fields in this order, no spaces, JSON's shortest escapes as encoding/json writes them, and base64 (RFC 4648 with
// padding) only where it is needed. Everything of one group begins alike, up to the epoch. A key of another version is left alone.
const keyVersion = 1

// errForeignKey: somebody else's record, or one of another version.
var errForeignKey = errors.New("no key of this program")

// groupPrefix is what all keys of a group begin with.
func groupPrefix(group string) []byte {
	b := append([]byte(`{"v":`), strconv.Itoa(keyVersion)...)
	if utf8.ValidString(group) {
		b = append(b, `,"group":`...)
		b = append(b, quoted(group)...)
	} else {
		b = append(b, `,"groupBase64":"`...)
		b = base64.StdEncoding.AppendEncode(b, []byte(group))
		b = append(b, '"')
	}
	return append(b, `,"epoch":`...)
}

// quoted is s, which is valid UTF-8, as a JSON string. Characters that only matter inside HTML stay readable.
func quoted(s string) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // a string can be encoded
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

func encodeKey(group string, epoch int32) []byte {
	return append(strconv.AppendInt(groupPrefix(group), int64(epoch), 10), '}')
}

func decodeKey(b []byte) (group string, epoch int32, err error) {
	var k struct {
		Version     int     `json:"v"`
		Group       *string `json:"group"`
		GroupBase64 []byte  `json:"groupBase64"`
		Epoch       int32   `json:"epoch"`
	}
	if err := json.Unmarshal(b, &k); err != nil {
		return "", 0, fmt.Errorf("%w: %v", errForeignKey, err)
	}
	if k.Version != keyVersion {
		return "", 0, fmt.Errorf("%w: version %d, this program knows %d", errForeignKey, k.Version, keyVersion)
	}
	group = string(k.GroupBase64)
	if k.Group != nil {
		group = *k.Group
	}
	if !bytes.Equal(encodeKey(group, k.Epoch), b) {
		return "", 0, fmt.Errorf("%w: another spelling", errForeignKey)
	}
	return group, k.Epoch, nil
}
