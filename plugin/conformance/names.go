package conformance

import (
	"strings"
	"testing"

	"streamkeeper/plugin"
)

// Names are group ids that are legal and that something on the way could trip over: Kafka puts no limit on the characters of an
// id. Each differs from each other, some in one byte only.
func Names() []string {
	return []string{
		"a", "A", "orders-app", "orders_app", "orders.app",
		".", "..", "...", ".hidden", "./a", "../a", "a/..", "/", "//", "a/b", "/a", "a/", "C:\\a",
		" ", "a b", " a", "a ", "\t", "a\nb", "a\r\nb", "\x00", "a\x00b", "\x7f",
		`"`, `a"b`, "'", "`", `\`, `\"`, `{"a":1}`, "null", "true", "0", "-1", "[]",
		"%", "%2F", "%2e%2e", "%00", "%zz", "+", "a+b", "a%20b", "~", "~2F", "~~", "~7E",
		"?", "a?b", "#", "a#b", "&", "a&b=c", "=", ";", ":", ",", "@", "!", "$", "(", ")", "[", "]", "{", "}", "<b>", "|", "^", "*",
		"CON", "nul.txt", "__proto__", "topologies", "groups",
		"ä", "a\u0308", "é", "e\u0301", "ß", "İ", "ı", "ſ", "K", // composed and decomposed, and letters that change length with their case
		"日本語", "группа", "קבוצה", "مجموعة", "\u202eabc", "a\u200fb", "\u200b", "\ufeff", "a\u2028b",
		"😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "\U0010ffff", "\ufffd",
		strings.Repeat("n", 249), strings.Repeat("n", 248) + "m", strings.Repeat("😀", 249), strings.Repeat("/", 249), strings.Repeat(".", 249),
	}
}

func groupNames(t *testing.T, p subject) {
	names := Names()
	seen := map[string]bool{}
	for _, n := range names {
		if seen[n] {
			t.Fatalf("the suite has %q twice", n)
		}
		seen[n] = true
		p.mustSet(t, n, 0, sample(n))
	}
	for _, n := range names {
		p.want(t, n, 0, sample(n))
	}
	for i, n := range names { // every second one goes, the others stay
		if i%2 == 0 {
			p.mustDelete(t, n)
		}
	}
	for i, n := range names {
		if i%2 == 0 {
			p.want(t, n, 0, nil)
		} else {
			p.want(t, n, 0, sample(n))
		}
	}
	for _, n := range names {
		p.mustDelete(t, n)
	}
}

// texts puts every name into each place of a description.
func texts(t *testing.T, p subject) {
	names := Names()
	d := &plugin.Description{}
	for i, n := range names {
		next := names[(i+1)%len(names)]
		d.Subtopologies = append(d.Subtopologies, plugin.Subtopology{ID: n, Nodes: []plugin.Node{
			{Name: n, Type: plugin.NodeSource, SourceTopics: []string{n, next}, Successors: []string{next, n}},
			{Name: next, Type: plugin.NodeProcessor, Stores: []string{next, n}, Successors: []string{n}},
			{Name: n, Type: plugin.NodeSink, SinkTopic: ptr(n)},
		}})
		d.GlobalStores = append(d.GlobalStores, plugin.GlobalStore{
			Source:    plugin.Node{Name: n, Type: plugin.NodeSource, SourceTopics: []string{n}, Successors: []string{next}},
			Processor: plugin.Node{Name: next, Type: plugin.NodeProcessor, Stores: []string{n}},
		})
	}
	a := group(t, "a")
	p.mustSet(t, a, 0, d)
	p.want(t, a, 0, d)
}
