package http

import (
	"net/url"
	"path"
	"regexp"
	"testing"

	"streamkeeper/plugin/conformance"
)

func TestSegments(t *testing.T) {
	for group, want := range map[string]string{
		"orders-app_1.2": "orders-app_1.2", "": "~", ".": "~2E", "..": "~2E~2E", "...": "...", ".a": ".a",
		"a/b": "a~2Fb", "~": "~7E", "é": "~C3~A9", "a b": "a~20b", "%2F": "~252F", "\xff\x00": "~FF~00",
	} {
		if got := GroupSegment(group); got != want {
			t.Errorf("%q is %s, want %s", group, got, want)
		}
	}
	for _, bad := range []string{"a/b", "~2", "~2f", "~zz", "~41", ".", "..", "~2E", "a~", "é", "%2F", "~~", "", "a b", "~2E~2E~"} {
		group, err := GroupOf(bad)
		if ok := bad == "~2E"; (err == nil) != ok {
			t.Errorf("%q: %q, %v", bad, group, err)
		}
	}
}

var unreserved = regexp.MustCompile(`^[A-Za-z0-9._~-]+$`)

// FuzzSegment: every id has one segment, which comes back and which nothing on the way changes.
func FuzzSegment(f *testing.F) {
	for _, n := range conformance.Names() {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, group string) {
		s := GroupSegment(group)
		if !unreserved.MatchString(s) || url.PathEscape(s) != s || path.Clean("/x/"+s+"/y") != "/x/"+s+"/y" {
			t.Errorf("%q is not safe", s)
		}
		if back, err := GroupOf(s); err != nil || back != group {
			t.Errorf("%q comes back as %q, %v", group, back, err)
		}
		// What looks like a segment is one, or is refused.
		if g, err := GroupOf(group); err == nil && GroupSegment(g) != group {
			t.Errorf("%q and %q are the same group", group, GroupSegment(g))
		}
	})
}
