package eventlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A topic into which a backup is being written has these settings, which no log may have, so that a replica that starts meanwhile, or after the
// restore was interrupted, refuses it instead of taking the part for the whole. Nothing is deleted by them: the retention has no end.
const (
	restoringPolicy    = "delete"
	restoringRetention = "-1"
)

// ErrRestoring: the topic is marked as one into which a backup is being written.
var ErrRestoring = errors.New("a restore into it has begun and has not ended")

// MarkRestoring marks the topic as one that is being restored, or takes the mark away. Not every log can be marked: an error that wraps
// kerr.UnsupportedVersion, kerr.InvalidConfig or an authorization says that this one can't.
func (k *Kafka) MarkRestoring(ctx context.Context, restoring bool) error {
	set := map[string]*string{"cleanup.policy": kmsg.StringPtr("compact"), "retention.ms": nil, "retention.bytes": nil}
	if restoring {
		set = map[string]*string{"cleanup.policy": kmsg.StringPtr(restoringPolicy), "retention.ms": kmsg.StringPtr(restoringRetention), "retention.bytes": kmsg.StringPtr("-1")}
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, k.id.Topic
	for _, name := range []string{"cleanup.policy", "retention.ms", "retention.bytes"} {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value, c.Op = name, set[name], kmsg.IncrementalAlterConfigOpSet
		if c.Value == nil {
			c.Op = kmsg.IncrementalAlterConfigOpDelete
		}
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(ctx, k.client)
	if err != nil {
		return fmt.Errorf("%s %s: settings can't be changed: %w", k.cfg.what, k.id.Topic, err)
	}
	for _, r := range resp.Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return fmt.Errorf("%s %s: settings can't be changed: %w", k.cfg.what, k.id.Topic, err)
		}
	}
	return nil
}
