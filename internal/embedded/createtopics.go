package embedded

import (
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// showConfigs makes kfake answer CreateTopics as a broker does: with a list of settings, never with null. kfake lists
// what the request set, and null where that was nothing; Java's admin client then fails with a NullPointerException,
// although the topic is there. A request that sets nothing gets Kafka's default cleanup policy, which changes nothing.
func showConfigs(fake *kfake.Cluster) {
	fake.ControlKey(kmsg.CreateTopics.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		if c, ok := r.(*kmsg.CreateTopicsRequest); ok {
			for i := range c.Topics {
				if t := &c.Topics[i]; len(t.Configs) == 0 {
					policy := kmsg.NewCreateTopicsRequestTopicConfig()
					policy.Name, policy.Value = "cleanup.policy", kmsg.StringPtr("delete")
					t.Configs = append(t.Configs, policy)
				}
			}
		}
		return nil, nil, false
	})
}
