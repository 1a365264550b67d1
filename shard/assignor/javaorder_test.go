package assignor

import (
	"slices"
	"testing"
	"unicode/utf16"
)

// javaOrder is Kafka's order: the iteration order of the java.util.HashMaps that StickyTaskAssignor fills while it
// goes through the members.
var javaOrder = order{
	processes: func(ofMembers []string) []string {
		m := newHashMap(len(ofMembers))
		for _, id := range ofMembers {
			m.computeIfAbsent(id)
		}
		return m.keys()
	},
	members: func(ids []string) []string {
		m := newHashMap(16)
		for _, id := range ids {
			m.put(id)
		}
		return m.keys()
	},
}

// hashMap is the part of java.util.HashMap that decides the order of its keys. Buckets of eight and more, which
// Java turns into trees, are left out.
type hashMap struct {
	buckets [][]string
	size    int
}

func newHashMap(capacity int) *hashMap {
	n := 1
	for n < capacity {
		n *= 2
	}
	return &hashMap{buckets: make([][]string, n)}
}

func (m *hashMap) bucket(key string) *[]string {
	var h uint32
	for _, unit := range utf16.Encode([]rune(key)) {
		h = 31*h + uint32(unit)
	}
	return &m.buckets[(h^h>>16)&uint32(len(m.buckets)-1)]
}

// put inserts at a bucket's end and makes room afterwards.
func (m *hashMap) put(key string) {
	if b := m.bucket(key); !slices.Contains(*b, key) {
		*b = append(*b, key)
		m.size++
		m.resize()
	}
}

// computeIfAbsent makes room before, also for a key that is there, and inserts at a bucket's head.
func (m *hashMap) computeIfAbsent(key string) {
	m.resize()
	if b := m.bucket(key); !slices.Contains(*b, key) {
		*b = slices.Insert(*b, 0, key)
		m.size++
	}
}

// resize doubles the table where more than three quarters of it, rounded down, are used.
func (m *hashMap) resize() {
	if m.size <= len(m.buckets)*3/4 {
		return
	}
	keys := m.keys()
	m.buckets = make([][]string, 2*len(m.buckets))
	for _, key := range keys {
		b := m.bucket(key)
		*b = append(*b, key)
	}
}

func (m *hashMap) keys() []string { return slices.Concat(m.buckets...) }

// The expected orders follow from the hashes of one-letter strings, which are the letters: A is 65, bucket 1 of 4 and
// of 16.
func TestJavaOrder(t *testing.T) {
	for _, c := range []struct {
		ids, processes, members string
	}{
		{"CDA", "DAC", "ACD"},     // a table of 4 for three members
		{"DABC", "DABC", "ABCD"},  // the fourth fills the table of 4, nothing doubles it
		{"DABCD", "ABCD", "ABCD"}, // five members make it a table of 8: A 1, B 2, C 3, D 4
		{"AC", "CA", "AC"},        // one bucket of a table of 2: the later in front
		{"AQ", "QA", "AQ"},        // A and Q share a bucket of 16 too
	} {
		ids := func(s string) []string {
			var l []string
			for _, r := range s {
				l = append(l, string(r))
			}
			return l
		}
		if got := javaOrder.processes(ids(c.ids)); !slices.Equal(got, ids(c.processes)) {
			t.Errorf("processes of %s: %v, want %s", c.ids, got, c.processes)
		}
		if got := javaOrder.members(ids(c.ids)); !slices.Equal(got, ids(c.members)) {
			t.Errorf("members %s: %v, want %s", c.ids, got, c.members)
		}
	}
}
