package coordinator

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/shard/groupconfig"
)

// emptyGroupText is what Kafka 4.4 says of a GROUP resource without a name when it is described (ConfigHelper).
const emptyGroupText = "Group name must not be empty"

var configTypes = map[groupconfig.Type]kmsg.ConfigType{
	groupconfig.Boolean: kmsg.ConfigTypeBoolean, groupconfig.String: kmsg.ConfigTypeString, groupconfig.Int: kmsg.ConfigTypeInt,
	groupconfig.Long: kmsg.ConfigTypeLong, groupconfig.List: kmsg.ConfigTypeList,
}

// DescribeConfigs describes what is configured for groups, and what could be. Every replica reads the whole log, so each can answer
// for every group after a read barrier; the settings are its own.
func (c *Coordinator) DescribeConfigs(ctx context.Context, _ Caller, r *kmsg.DescribeConfigsRequest) *kmsg.DescribeConfigsResponse {
	resp := r.ResponseKind().(*kmsg.DescribeConfigsResponse)
	resp.Resources = make([]kmsg.DescribeConfigsResponseResource, len(r.Resources))
	unread := c.readConfigs(ctx, r.Resources)
	fanout(len(r.Resources), func(i int) {
		resp.Resources[i] = c.describeConfigs(unread, r, &r.Resources[i])
	})
	return resp
}

// readConfigs waits until the partitions of the groups have been read up to what was in the log when it was called, and returns those that
// can't be. They have judgeTimeout together: who asks for thousands of groups wants an answer, too.
func (c *Coordinator) readConfigs(ctx context.Context, asked []kmsg.DescribeConfigsRequestResource) map[int32]error {
	ctx, cancel := context.WithTimeout(ctx, judgeTimeout)
	defer cancel()
	unread := map[int32]error{}
	for i := range asked {
		if asked[i].ResourceName == "" {
			continue // refused anyway
		}
		unread[c.shards.Partition(asked[i].ResourceName)] = nil
	}
	var mu sync.Mutex
	partitions := slices.Collect(maps.Keys(unread))
	fanout(len(partitions), func(i int) {
		err := c.barriers.wait(ctx, partitions[i])
		mu.Lock()
		defer mu.Unlock()
		unread[partitions[i]] = err
	})
	return unread
}

func (c *Coordinator) describeConfigs(unread map[int32]error, r *kmsg.DescribeConfigsRequest, asked *kmsg.DescribeConfigsRequestResource) kmsg.DescribeConfigsResponseResource {
	d := kmsg.NewDescribeConfigsResponseResource()
	d.ResourceType, d.ResourceName, d.ErrorMessage = asked.ResourceType, asked.ResourceName, kmsg.StringPtr("") // not null, as in Kafka
	if asked.ResourceName == "" {
		d.ErrorCode, d.ErrorMessage = codeInvalidRequest, kmsg.StringPtr(emptyGroupText)
		return d
	}
	configs, err := map[string]string(nil), unread[c.shards.Partition(asked.ResourceName)]
	if err == nil {
		configs, err = c.shards.GroupConfig(asked.ResourceName)
	}
	if err != nil {
		f := c.failed("DescribeConfigs", asked.ResourceName, err)
		d.ErrorCode, d.ErrorMessage = f.Code, f.text()
		return d
	}
	for _, e := range c.shards.Groups().Describe(configs, asked.ConfigNames) {
		d.Configs = append(d.Configs, describedConfig(r, e))
	}
	return d
}

func describedConfig(r *kmsg.DescribeConfigsRequest, e groupconfig.Entry) kmsg.DescribeConfigsResponseResourceConfig {
	d := kmsg.NewDescribeConfigsResponseResourceConfig()
	d.Name, d.Value, d.Source, d.ConfigType = e.Name, &e.Value, kmsg.ConfigSource(e.Source), configTypes[e.Type]
	d.IsDefault = e.Source == groupconfig.FromDefault // version 0, which has no source
	if r.IncludeSynonyms {
		for _, y := range e.Synonyms {
			s := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			s.Name, s.Value, s.Source = y.Name, &y.Value, kmsg.ConfigSource(y.Source)
			d.ConfigSynonyms = append(d.ConfigSynonyms, s)
		}
	}
	if r.IncludeDocumentation {
		d.Documentation = &e.Doc
	}
	return d
}

// ListConfigResources lists the groups for which something is configured, ascending, of all shards.
func (c *Coordinator) ListConfigResources(ctx context.Context, _ Caller, r *kmsg.ListConfigResourcesRequest) *kmsg.ListConfigResourcesResponse {
	resp := r.ResponseKind().(*kmsg.ListConfigResourcesResponse)
	resp.ConfigResources = []kmsg.ListConfigResourcesResponseConfigResource{}
	ctx, cancel := context.WithTimeout(ctx, judgeTimeout)
	defer cancel()
	var mu sync.Mutex
	var groups []string
	var first error
	fanout(int(c.shards.Partitions()), func(i int) {
		err := c.barriers.wait(ctx, int32(i))
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			err = c.shards.GroupsWithConfig(int32(i), func(group string) { groups = append(groups, group) })
		}
		if err != nil && first == nil {
			first = err
		}
	})
	if first != nil {
		resp.ErrorCode = c.failed("ListConfigResources", "", first).Code
		return resp
	}
	slices.Sort(groups)
	for _, group := range groups {
		g := kmsg.NewListConfigResourcesResponseConfigResource()
		g.Name, g.Type = group, int8(kmsg.ConfigResourceTypeGroupConfig)
		resp.ConfigResources = append(resp.ConfigResources, g)
	}
	return resp
}
