package shard

import "testing"

func TestPartitionRanges(t *testing.T) {
	for _, c := range []struct {
		ps   []int32
		want string
	}{
		{nil, ""},
		{[]int32{7}, "7"},
		{[]int32{1, 0}, "0-1"},
		{[]int32{4, 0, 7, 3, 5, 5}, "0 3-5 7"},
		{[]int32{0, 2, 4}, "0 2 4"},
	} {
		if got := partitionRanges(c.ps); got != c.want {
			t.Errorf("%v: %q, want %q", c.ps, got, c.want)
		}
	}
}
