package shard

import (
	"fmt"
	"testing"

	"streamkeeper/eventlog"
)

// A list of more groups than are looked at in one turn of the loop has each of them, once, in its state.
func TestAListLooksAtAllGroupsInMemory(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		const groups = 2*lookAtOnce + lookAtOnce/2
		for i := range groups {
			id := fmt.Sprintf("g%05d", i)
			r.join(t, id, "m")
			if i%3 == 0 {
				if _, err := r.beat(id, "m", -1); err != nil {
					t.Fatal(err)
				}
			}
		}
		list, err := r.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		states := map[string]string{}
		for _, l := range list {
			states[l.Group] = l.State
		}
		if len(list) != groups || len(states) != groups {
			t.Errorf("%d groups are listed, %d different ones, want %d", len(list), len(states), groups)
		}
		for i := range groups {
			want := "Stable"
			if i%3 == 0 {
				want = "Empty"
			}
			if id := fmt.Sprintf("g%05d", i); states[id] != want {
				t.Fatalf("%s is listed as %q, want %s", id, states[id], want)
			}
		}
	})
}
