package topic

import (
	"fmt"
	"math"
	"strconv"

	"streamkeeper/plugin"
)

// topicLengthMax is Kafka's.
const topicLengthMax = 249

// Factory makes the plugin from settings.
func Factory() plugin.Factory {
	return plugin.Factory{
		Name:    Name,
		Summary: "in a compacted topic on the cluster itself",
		Settings: []plugin.Setting{
			{Name: "topic", Doc: "the topic's name; by default that of the record log with " + TopicSuffix},
			{Name: "epochs.max", Default: strconv.Itoa(EpochsMaxDefault), Doc: "topology epochs kept per group, the highest ones"},
			{Name: "description.bytes.max", Default: "0", Doc: "bytes of one description, compressed; larger ones are refused for good; 0: what the topic takes (max.message.bytes)"},
		},
		Open: func(v *plugin.Values) (plugin.Plugin, error) {
			cfg := Config{
				Topic:               v.Text("topic"),
				EpochsMax:           int(v.Int("epochs.max", 1, 1000)),
				DescriptionBytesMax: int(v.Int("description.bytes.max", 0, math.MaxInt32)),
			}
			if why := badTopic(cfg.Topic); why != "" {
				v.Wrong("topic", why)
			}
			if err := v.Err(); err != nil {
				return nil, err
			}
			return New(cfg), nil
		},
	}
}

// badTopic says why a name is no topic's name, by Kafka's rule; "" is the default.
func badTopic(name string) string {
	switch {
	case name == "." || name == "..":
		return "want a topic's name"
	case len(name) > topicLengthMax:
		return fmt.Sprintf("want a topic's name, of at most %d characters", topicLengthMax)
	}
	for _, c := range name {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-') {
			return fmt.Sprintf("want a topic's name, which can't hold %q", c)
		}
	}
	return ""
}
