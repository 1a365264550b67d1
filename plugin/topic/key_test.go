package topic

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestKeysAreReadable(t *testing.T) {
	for _, c := range []struct {
		group string
		epoch int32
		want  string
	}{
		{"orders", 3, `{"v":1,"group":"orders","epoch":3}`},
		{"", 0, `{"v":1,"group":"","epoch":0}`},
		{`a"b\c/<&>`, -1, `{"v":1,"group":"a\"b\\c/<&>","epoch":-1}`},
		{"tab\tnul\x00", math.MaxInt32, `{"v":1,"group":"tab\tnul\u0000","epoch":2147483647}`},
		{"Straße ⚙", math.MinInt32, `{"v":1,"group":"Straße ⚙","epoch":-2147483648}`},
		{"\xff\x61", 7, `{"v":1,"groupBase64":"/2E=","epoch":7}`},
		{"�", 1, `{"v":1,"group":"` + "�" + `","epoch":1}`},
	} {
		got := encodeKey(c.group, c.epoch)
		if string(got) != c.want {
			t.Errorf("%q: %s, want %s", c.group, got, c.want)
		}
		if group, epoch, err := decodeKey(got); err != nil || group != c.group || epoch != c.epoch {
			t.Errorf("%s reads back as %q %d (%v)", got, group, epoch, err)
		}
	}
}

// TestForeignKeysAreLeftAlone: another version, another spelling, another program's.
func TestForeignKeysAreLeftAlone(t *testing.T) {
	for _, key := range []string{
		"", "null", "[]", "x", "\x7d\x00", `{"v":2,"group":"g","epoch":1}`, `{"v":1,"group":"g"}`, `{"v":1, "group":"g","epoch":1}`,
		`{"group":"g","v":1,"epoch":1}`, `{"v":1,"group":"\u0067","epoch":1}`, `{"v":1,"groupBase64":"Zw==","epoch":1}`,
		`{"v":1,"group":"g","groupBase64":"/w==","epoch":1}`, `{"v":1,"group":"g","epoch":01}`, `{"v":1,"group":"g","epoch":2147483648}`,
	} {
		if group, epoch, err := decodeKey([]byte(key)); err == nil {
			t.Errorf("%s is taken for %q %d", key, group, epoch)
		}
	}
}

// FuzzKeys: every id reads back, and no two groups share a prefix.
func FuzzKeys(f *testing.F) {
	f.Add("g", "g\"", int32(0))
	f.Add("g", "g\",\"epoch\":1", int32(1))
	f.Add("\xff", "/w==", int32(-2))
	f.Add("\xed\xa0\x80", "��", int32(5))
	f.Fuzz(func(t *testing.T, a, b string, epoch int32) {
		group, e, err := decodeKey(encodeKey(a, epoch))
		if err != nil || group != a || e != epoch {
			t.Fatalf("%q %d reads back as %q %d (%v)", a, epoch, group, e, err)
		}
		if !utf8.Valid(encodeKey(a, epoch)) {
			t.Fatalf("the key of %q is no text", a)
		}
		if a != b && bytes.HasPrefix(encodeKey(b, epoch), groupPrefix(a)) {
			t.Fatalf("a key of %q looks like one of %q", b, a)
		}
	})
}

func TestSurplus(t *testing.T) {
	for _, c := range []struct {
		held  []int32
		epoch int32
		max   int
		want  string
	}{
		{nil, 3, 1, "[]"},
		{[]int32{3}, 3, 1, "[]"},
		{[]int32{5}, 3, 1, "[]"}, // the higher one stays, and so does what was just set
		{[]int32{3, 5}, 6, 1, "[3 5]"},
		{[]int32{1, 2, 3}, 4, 3, "[1]"},
		{[]int32{1, 2, 3, 4}, 4, 3, "[1]"},
		{[]int32{4, 5}, 3, 2, "[]"},
		{[]int32{2, 5}, 3, 2, "[2]"},
		{[]int32{1, 4, 5}, 3, 2, "[1]"},
	} {
		if got := strings.ReplaceAll(strings.TrimSpace(sprint(surplus(c.held, c.epoch, c.max))), "[]int32", ""); got != c.want {
			t.Errorf("held %v, set %d, at most %d: %s go, want %s", c.held, c.epoch, c.max, got, c.want)
		}
	}
}
