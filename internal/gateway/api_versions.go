package gateway

import (
	"regexp"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

// softwarePattern is what a client's software name and version must match (KIP-511).
var softwarePattern = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)

// planApiVersions answers from what the broker behind this connection said when it was connected, or, while it can't be reached, the
// last time it was. The check of
// cluster id and node id (version 5) is made against the listener's node: the broker would compare with its own.
func planApiVersions(c *conn, rq *request) (plan, error) {
	resp := kmsg.NewPtrApiVersionsResponse()
	if rq.msg == nil { // newer than we can read: the client asks again with the range that this answer names
		resp.SetVersion(0)
		resp.ErrorCode = unsupportedVersion.Code
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = apiVersions, ours[apiVersions].min, ours[apiVersions].max
		resp.ApiKeys = append(resp.ApiKeys, k)
		return answerWith(resp), nil
	}
	req := rq.msg.(*kmsg.ApiVersionsRequest)
	resp.SetVersion(rq.Version)
	if code := checkApiVersions(req, c.g.clusterID.Load(), c.listener.id); code != 0 {
		resp.ErrorCode = code
		return answerWith(resp), nil
	}
	c.software = req
	var known *remembered
	switch u, err := c.upstreamFor(rq.Header); {
	case err == nil:
		known = &remembered{features: u.features, versions: u.versions}
	default:
		if known = c.g.recall(c.listener.id); known == nil || c.ctx.Err() != nil {
			return plan{}, err
		}
	}
	*resp = known.features
	resp.SetVersion(rq.Version)
	resp.ThrottleMillis = 0
	resp.ApiKeys = offered(known.versions, c.listener.own(), c.g.service.Descriptions())
	if rq.Version < 4 { // a minimum of 0 is taken for malformed by clients that speak version 3 (KIP-1022)
		resp.SupportedFeatures = slices.DeleteFunc(slices.Clone(resp.SupportedFeatures), func(f kmsg.ApiVersionsResponseSupportedFeature) bool {
			return f.MinVersion == 0
		})
	}
	return answerWith(resp), nil
}

func checkApiVersions(req *kmsg.ApiVersionsRequest, clusterID *string, node int32) int16 {
	if req.Version >= 3 && (!softwarePattern.MatchString(req.ClientSoftwareName) || !softwarePattern.MatchString(req.ClientSoftwareVersion)) {
		return invalidRequest.Code
	}
	if req.Version < 5 {
		return 0
	}
	if (req.ClusterID == nil) != (req.NodeID == -1) {
		return invalidRequest.Code
	}
	if req.ClusterID != nil && clusterID != nil && (*req.ClusterID != *clusterID || req.NodeID != node) {
		return rebootstrapRequired.Code
	}
	return 0
}

// offered merges the cluster's ranges with ours:
//
//	18, 64, 88, 89 ours, whatever the cluster says; 93 where topology descriptions are kept, else it is dropped
//	8, 9           up to 9 where the cluster has 8: version 9 only adds the member epoch, which a streams group
//	               needs, and a foreign group's request is sent on in version 8. Version 10 (topic ids) only where
//	               the cluster has it; without it clients use names
//	42             up to 3 where the cluster has 2: version 3 only adds an error message
//	16             up to 5 where the cluster has 4: the types filter is applied here, to a list without types
//	74             up to 1 whatever the cluster has: groups with a configuration are listed here
//	others         as the cluster has them; those that are decoded at most as far as they can be
//	unknown keys   dropped, as their headers can't be read
func offered(up *versions, own, descriptions bool) []kmsg.ApiVersionsResponseApiKey {
	var list []kmsg.ApiVersionsResponseApiKey
	for key := range int16(len(up)) {
		v := up[key]
		if o, ok := ours[key]; ok {
			v.min, v.max, v.known = o.min, o.max, true
		} else if key == streamsTopologyUpdate && descriptions {
			v.min, v.max, v.known = topologyUpdate.min, topologyUpdate.max, true
		} else if key == listConfigResources {
			v.max, v.known = listConfigResourcesMax, true
		} else if !v.known || !wire.Known(key) || key == streamsTopologyUpdate {
			continue
		} else {
			if decodes(key) {
				v.max = min(v.max, wire.MaxVersion(key))
			}
			v.max = raised(key, v.max)
		}
		if v.min > v.max {
			continue
		}
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = key, v.min, v.max
		list = append(list, k)
	}
	return list
}

// raised is the version that is offered although the cluster ends at most; see offered.
func raised(key, most int16) int16 {
	switch {
	case (key == offsetCommit || key == offsetFetch) && most == 8:
		return 9
	case key == deleteGroups && most == 2:
		return 3
	case key == listGroups && most == 4:
		return 5
	case key == listConfigResources:
		return listConfigResourcesMax
	}
	return most
}
