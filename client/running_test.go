package client

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestWhoRunsWhat(t *testing.T) {
	id := func(s string, p int32) TaskID { return TaskID{s, p} }
	d := &GroupDescription{Members: []MemberDescription{
		{ID: "b", ClientID: "cb", Host: "h", ProcessID: "p", Assignment: Tasks{Active: []TaskID{id("10", 0), id("2", 1)}, Standby: []TaskID{id("2", 0)}},
			Target: Tasks{Active: []TaskID{id("2", 1)}, Standby: []TaskID{id("2", 0)}}},
		{ID: "a", ClientID: "ca", Target: Tasks{Active: []TaskID{id("10", 0), id("2", 0)}, Warmup: []TaskID{id("x", 3)}}},
	}}
	var got []string
	for _, r := range d.RunningTasks() {
		got = append(got, fmt.Sprintf("%s %s %v %s", r.Task, r.Role, r.Pending, r.Member))
	}
	want := []string{"2_0 active true a", "2_0 standby false b", "2_1 active false b", "10_0 active false b", "10_0 active true a", "x_3 warm-up true a"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	notes := d.RunningNotes()
	if want := []string{"10_0 active cb (b)", "10_0 active to be ca (a)"}; !reflect.DeepEqual(notes["10"], want) || len(notes) != 3 {
		t.Errorf("notes %v", notes)
	}
	if r := (&GroupDescription{}).RunningTasks(); r == nil || len(r) != 0 {
		t.Errorf("of an empty group: %v", r)
	}
}
