package memory

import (
	"context"
	"strings"
	"testing"

	"streamkeeper/plugin"
	"streamkeeper/plugin/conformance"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, func(*testing.T) plugin.Plugin { return New(Config{}) })
}

// TestConformanceWithOneEpoch: also the smallest plugin keeps the highest epoch.
func TestConformanceWithOneEpoch(t *testing.T) {
	conformance.Run(t, func(*testing.T) plugin.Plugin { return New(Config{EpochsMax: 1, DescriptionBytesMax: 200_000}) })
}

func of(nameBytes int) *plugin.Description {
	return &plugin.Description{Subtopologies: []plugin.Subtopology{{ID: "0", Nodes: []plugin.Node{
		{Name: strings.Repeat("n", nameBytes), Type: plugin.NodeSource},
	}}}}
}

func set(p *Plugin, group string, epoch int32, d *plugin.Description) error {
	_, err := p.Set(context.Background(), group, epoch, d).Result()
	return err
}

// TestFullIsTransient: what is too large alone will never fit; where all is full, space may come.
func TestFullIsTransient(t *testing.T) {
	p := New(Config{BytesMax: 10_000, DescriptionBytesMax: 4_000})
	if err := set(p, "g", 0, of(5_000)); !plugin.IsPermanent(err) || !strings.Contains(err.Error(), "more than the 4000") {
		t.Errorf("a description that is too large: %v", err)
	}
	for _, g := range []string{"a", "b"} {
		if err := set(p, g, 0, of(3_800)); err != nil {
			t.Fatal(err)
		}
	}
	err := set(p, "c", 0, of(3_800))
	if err == nil || plugin.IsPermanent(err) || !strings.Contains(err.Error(), "full") {
		t.Errorf("a full memory: %v", err)
	}
	if err := set(p, "a", 0, of(1_000)); err != nil {
		t.Errorf("a smaller description in place of a larger one: %v", err)
	}
	if _, err := p.Delete(context.Background(), "b").Result(); err != nil {
		t.Fatal(err)
	}
	if err := set(p, "c", 0, of(3_800)); err != nil {
		t.Errorf("after a delete: %v", err)
	}
}

// TestBytesAreCountedBack: after everything is deleted nothing is counted, whatever came in between.
func TestBytesAreCountedBack(t *testing.T) {
	p := New(Config{EpochsMax: 2})
	for round := range 20 {
		for _, g := range []string{"a", "bb", "ccc"} {
			for _, epoch := range []int32{3, 1, 2, 1, 9, int32(round)} {
				if err := set(p, g, epoch, of(round*10+int(epoch))); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(p.groups[g].epochs); n > 2 {
				t.Fatalf("%d epochs are kept", n)
			}
		}
	}
	for _, g := range []string{"a", "bb", "ccc", "never"} {
		if _, err := p.Delete(context.Background(), g).Result(); err != nil {
			t.Fatal(err)
		}
	}
	if p.bytes != 0 || len(p.groups) != 0 {
		t.Errorf("%d bytes and %d groups are left", p.bytes, len(p.groups))
	}
}

func TestFactory(t *testing.T) {
	r, err := plugin.NewRegistry(Factory())
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Open("memory", map[string]string{"description.bytes.max": "100", "epochs.max": "2"})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.(*Plugin).cfg; got != (Config{BytesMax: BytesMaxDefault, DescriptionBytesMax: 100, EpochsMax: 2}) {
		t.Errorf("config %+v", got)
	}
	_, err = r.Open("memory", map[string]string{"bytes.max": "0", "epochs.max": "many"})
	want := `plugin memory: bytes.max="0": want a number of at least 1` + "\n" + `plugin memory: epochs.max="many": want a whole number`
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
