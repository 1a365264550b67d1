package main

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestDeleteLeavesGroupsOfOtherTypes: DeleteGroups takes the id of any group, and what is not ours goes to the cluster.
func TestDeleteLeavesGroupsOfOtherTypes(t *testing.T) {
	d := startDev(t, t.TempDir())
	cl, err := kgo.NewClient(kgo.SeedBrokers(d.bootstrap))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	produce(t, d, 1)
	adm := kadm.NewClient(cl)
	offsets := kadm.Offsets{}
	offsets.AddOffset("in", 0, 1, -1)
	if err := adm.CommitAllOffsets(t.Context(), "consumers", offsets); err != nil {
		t.Fatal(err)
	}
	out, said, code := execute(t, d, "delete", "consumers", "nobody")
	if code != exitFailure || out != "" || !strings.Contains(said, "Group 'consumers' does not exist or is not a streams group.") ||
		!strings.Contains(said, "Group 'nobody' does not exist or is not a streams group.") {
		t.Errorf("exit %d: %s%s", code, out, said)
	}
	if left, err := adm.FetchOffsets(t.Context(), "consumers"); err != nil || len(left.Offsets()) != 1 {
		t.Errorf("the group's offsets: %+v, %v", left, err)
	}
}
