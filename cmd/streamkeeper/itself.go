package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// notItself refuses a cluster that is streamkeeper in front of one, with the same log: its replica would be assigned shards in the ownership group, and could
// never claim them, because nobody writes to the log through streamkeeper. The log topic gives it away: streamkeeper shows it as internal, a cluster does not.
func notItself(ctx context.Context, cl *kgo.Client, logTopic string) error {
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(logTopic)
	req.Topics = []kmsg.MetadataRequestTopic{topic}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("look for the log topic %s: %w", logTopic, err)
	}
	for _, t := range resp.Topics {
		if kerr.ErrorForCode(t.ErrorCode) == nil && t.IsInternal {
			return usage(fmt.Errorf("--bootstrap-servers: %v is streamkeeper, not the cluster behind it: name the brokers themselves", cl.OptValue(kgo.SeedBrokers)))
		}
	}
	return nil
}
