package kafkatest

import (
	"os"
	"path/filepath"
	"testing"
)

func TestEventsOf(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	lines := "1 g/a STATE RUNNING\n[a line of the log] g/a STATE no\n2 g/a VALUE counts word1 4\n3 g/a VALUE counts word10 5\n4 g/b STATE RUNNING\n5 g/a STATE ERR"
	if err := os.WriteFile(out, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &process{outFile: out}
	for _, c := range []struct {
		key, kind string
		began     int
		want      []string
	}{
		{"g/a", "STATE", 0, []string{"RUNNING"}}, // the last line is not whole
		{"g/a", "STATE", 1, nil},
		{"g/a", "VALUE", 0, []string{"counts word1 4", "counts word10 5"}},
		{"g/a", "VALUE counts word1", 0, []string{"4"}},
		{"g/a", "VALUE counts", 0, []string{"word1 4", "word10 5"}},
		{"g/c", "STATE", 0, nil},
	} {
		var got []string
		for _, e := range p.eventsOf(c.key, c.kind, c.began) {
			got = append(got, e.rest)
		}
		if len(got) != len(c.want) {
			t.Errorf("%s %s from %d: %q, want %q", c.key, c.kind, c.began, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s %s from %d: %q, want %q", c.key, c.kind, c.began, got, c.want)
			}
		}
	}
}
