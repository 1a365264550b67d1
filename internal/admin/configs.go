package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Setting is something that was configured for the group alone.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Otherwise is what counts where it is not configured; empty where that is not known.
	Otherwise string `json:"otherwise"`
}

// configs asks what is configured for the group alone, ascending by name. A cluster that does not know such settings has none.
func (c *Client) configs(ctx context.Context, group string) ([]Setting, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms = true
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(ctx, c.cl)
	if err == nil && len(resp.Resources) == 1 {
		err = kerr.ErrorForCode(resp.Resources[0].ErrorCode)
	}
	switch {
	case err == kerr.InvalidRequest:
		return []Setting{}, nil
	case err != nil:
		return nil, fmt.Errorf("configuration of group %s: %w", group, err)
	case len(resp.Resources) != 1:
		return nil, fmt.Errorf("configuration of group %s: %d answers", group, len(resp.Resources))
	}
	settings := []Setting{}
	for _, d := range resp.Resources[0].Configs {
		if d.Source != kmsg.ConfigSourceGroupConfig || d.Value == nil {
			continue
		}
		s := Setting{Name: d.Name, Value: *d.Value}
		if len(d.ConfigSynonyms) > 1 && d.ConfigSynonyms[1].Value != nil {
			s.Otherwise = *d.ConfigSynonyms[1].Value
		}
		settings = append(settings, s)
	}
	slices.SortFunc(settings, func(a, b Setting) int { return strings.Compare(a.Name, b.Name) })
	return settings, nil
}
