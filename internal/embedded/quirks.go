package embedded

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// createTopicsMax is the last version of CreateTopics whose answer has no settings in it. kfake's newer answers name no source
// of a setting, which Java's admin client takes for an error although the topic is there.
const createTopicsMax = 4

// versions are what the embedded cluster speaks: everything that kfake does, less what Java's admin client can't read.
// DescribeTopicPartitions answers null where Java expects a list; without it Java asks with Metadata.
func versions() *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(kmsg.CreateTopics.Int16(), createTopicsMax)
	v.SetMaxKeyVersion(kmsg.DescribeTopicPartitions.Int16(), -1)
	return v
}

// foldTypes makes the types filter of ListGroups match whatever its case, as Kafka's does: Java asks for "Classic", kfake knows
// "classic".
func foldTypes(fake *kfake.Cluster) {
	fake.ControlKey(kmsg.ListGroups.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		if l, ok := r.(*kmsg.ListGroupsRequest); ok {
			for i := range l.TypesFilter {
				l.TypesFilter[i] = strings.ToLower(l.TypesFilter[i])
			}
		}
		return nil, nil, false
	})
}
