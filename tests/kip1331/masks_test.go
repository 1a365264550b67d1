package kip1331

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Kafka answers for several groups in any order.

func sortDescribed(r *kmsg.StreamsGroupDescribeResponse) {
	slices.SortStableFunc(r.Groups, func(a, b kmsg.StreamsGroupDescribeResponseGroup) int { return cmp.Compare(a.Group, b.Group) })
	for i := range r.Groups {
		slices.SortFunc(r.Groups[i].Members, func(a, b kmsg.StreamsGroupDescribeResponseGroupMember) int {
			return cmp.Compare(a.MemberID, b.MemberID)
		})
	}
}

func sortDeleted(r *kmsg.DeleteGroupsResponse) {
	slices.SortStableFunc(r.Groups, func(a, b kmsg.DeleteGroupsResponseGroup) int { return cmp.Compare(a.Group, b.Group) })
}
