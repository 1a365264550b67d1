package kafkatest

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Guarded are the properties of brokers that heed ACLs, and let everybody do what there is no ACL about.
var Guarded = map[string]string{
	"authorizer.class.name":          "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
	"allow.everyone.if.no.acl.found": "true",
}

// Rule is an ACL about all who come from a host: clients that don't log in are told apart by their addresses. What a rule is about is closed to all whom
// no rule allows it.
type Rule struct {
	Kind      kmsg.ACLResourceType
	Name      string // of the resource
	Prefixed  bool   // of all resources whose names begin with Name
	Operation kmsg.ACLOperation
	Host      string // an address; "*" is every one
	Deny      bool   // rather than allow
}

func (r Rule) pattern() kmsg.ACLResourcePatternType {
	if r.Prefixed {
		return kmsg.ACLResourcePatternTypePrefixed
	}
	return kmsg.ACLResourcePatternTypeLiteral
}

func (r Rule) permission() kmsg.ACLPermissionType {
	if r.Deny {
		return kmsg.ACLPermissionTypeDeny
	}
	return kmsg.ACLPermissionTypeAllow
}

// everybody is the principal of a Rule.
const everybody = "User:*"

// AddRules adds ACLs. They count when it returns, or a moment later.
func (c *Cluster) AddRules(rules ...Rule) {
	c.tb.Helper()
	req := kmsg.NewPtrCreateACLsRequest()
	req.Version = 1
	for _, r := range rules {
		a := kmsg.NewCreateACLsRequestCreation()
		a.ResourceType, a.ResourceName, a.ResourcePatternType = r.Kind, r.Name, r.pattern()
		a.Principal, a.Host, a.Operation, a.PermissionType = everybody, r.Host, r.Operation, r.permission()
		req.Creations = append(req.Creations, a)
	}
	for i, got := range c.askAny(req).(*kmsg.CreateACLsResponse).Results {
		if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
			c.tb.Fatalf("add the rule %+v: %v", rules[i], err)
		}
	}
}

// RemoveRules removes ACLs as they were added.
func (c *Cluster) RemoveRules(rules ...Rule) {
	c.tb.Helper()
	req := kmsg.NewPtrDeleteACLsRequest()
	req.Version = 1
	for _, r := range rules {
		f := kmsg.NewDeleteACLsRequestFilter()
		f.ResourceType, f.ResourceName, f.ResourcePatternType = r.Kind, kmsg.StringPtr(r.Name), r.pattern()
		f.Principal, f.Host, f.Operation, f.PermissionType = kmsg.StringPtr(everybody), kmsg.StringPtr(r.Host), r.Operation, r.permission()
		req.Filters = append(req.Filters, f)
	}
	for i, got := range c.askAny(req).(*kmsg.DeleteACLsResponse).Results {
		if err := kerr.ErrorForCode(got.ErrorCode); err != nil || len(got.MatchingACLs) != 1 {
			c.tb.Fatalf("remove the rule %+v: %v, %d were there", rules[i], err, len(got.MatchingACLs))
		}
	}
}

// askAny sends a request to the first broker.
func (c *Cluster) askAny(req kmsg.Request) kmsg.Response {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	resp, err := Ask(ctx, c.Addr(1), req)
	if err != nil {
		c.tb.Fatalf("%s: %v", kmsg.NameForKey(req.Key()), err)
	}
	return resp
}
