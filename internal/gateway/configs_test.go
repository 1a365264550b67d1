package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/coordinator"
	"streamkeeper/internal/wire"
)

// groupConfigs are what was configured through a service or a scripted cluster: "group name" → value. The value "bad" is refused.
type groupConfigs map[string]string

func (g groupConfigs) describe(r *kmsg.DescribeConfigsRequest, value string) *kmsg.DescribeConfigsResponse {
	resp := r.ResponseKind().(*kmsg.DescribeConfigsResponse)
	for _, res := range r.Resources {
		d := kmsg.NewDescribeConfigsResponseResource()
		d.ResourceType, d.ResourceName = res.ResourceType, res.ResourceName
		for _, name := range []string{"streams.a", "consumer.a"} {
			if len(res.ConfigNames) == 0 || slices.Contains(res.ConfigNames, name) {
				c := kmsg.NewDescribeConfigsResponseResourceConfig()
				c.Name, c.Value = name, kmsg.StringPtr(value)
				d.Configs = append(d.Configs, c)
			}
		}
		resp.Resources = append(resp.Resources, d)
	}
	return resp
}

func (g groupConfigs) alter(r kmsg.Request) kmsg.Response {
	req := readAlter(r)
	var results []altered
	for _, res := range req.resources {
		a := altered{typ: res.typ, name: res.name}
		for _, c := range res.configs {
			if c.value != nil && *c.value == "bad" {
				a.code, a.text = 40, kmsg.StringPtr("bad "+c.name)
			}
		}
		if a.code == 0 && !req.validateOnly {
			if req.replaces {
				maps.DeleteFunc(g, func(k, _ string) bool { return strings.HasPrefix(k, res.name+" ") })
			}
			for _, c := range res.configs {
				if c.op == kmsg.IncrementalAlterConfigOpDelete {
					delete(g, res.name+" "+c.name)
				} else {
					g[res.name+" "+c.name] = *c.value
				}
			}
		}
		results = append(results, a)
	}
	return req.answer(results)
}

func (s *service) DescribeConfigs(_ context.Context, _ coordinator.Caller, r *kmsg.DescribeConfigsRequest) *kmsg.DescribeConfigsResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := s.configs.describe(r, "ours")
	for i := range resp.Resources { // a coordinator has names of streams groups alone
		d := &resp.Resources[i]
		d.Configs = slices.DeleteFunc(d.Configs, func(c kmsg.DescribeConfigsResponseResourceConfig) bool { return c.Name != "streams.a" })
	}
	return resp
}

func (s *service) IncrementalAlterConfigs(_ context.Context, _ coordinator.Caller, r *kmsg.IncrementalAlterConfigsRequest) *kmsg.IncrementalAlterConfigsResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.configs.alter(r).(*kmsg.IncrementalAlterConfigsResponse)
}

func (s *service) AlterConfigs(_ context.Context, _ coordinator.Caller, r *kmsg.AlterConfigsRequest) *kmsg.AlterConfigsResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.configs.alter(r).(*kmsg.AlterConfigsResponse)
}

func (s *service) ListConfigResources(_ context.Context, _ coordinator.Caller, r *kmsg.ListConfigResourcesRequest) *kmsg.ListConfigResourcesResponse {
	resp := r.ResponseKind().(*kmsg.ListConfigResourcesResponse)
	for _, name := range []string{"ours", "both"} {
		resp.ConfigResources = append(resp.ConfigResources, kmsg.ListConfigResourcesResponseConfigResource{Name: name, Type: 32})
	}
	return resp
}

// startWithConfigs is a gateway before a cluster that has configurations of groups, or refuses them.
func startWithConfigs(t *testing.T, refuses int16) (*Gateway, *scripted, groupConfigs, *service) {
	t.Helper()
	theirs, svc := groupConfigs{}, newService()
	up := startScripted(t, "127.0.0.1:0", nil)
	up.change(func(s *scripted) {
		others := clusterAnswers(s)
		s.versions[describeConfigs] = [2]int16{1, 4}
		s.answer = func(h wire.Header, req kmsg.Request) kmsg.Response {
			switch req := req.(type) {
			case *kmsg.DescribeConfigsRequest:
				resp := theirs.describe(req, "theirs")
				for i := range resp.Resources {
					if resp.Resources[i].ResourceType == kmsg.ConfigResourceTypeGroupConfig && refuses != 0 {
						resp.Resources[i].ErrorCode, resp.Resources[i].Configs = refuses, nil
					}
				}
				return resp
			case *kmsg.IncrementalAlterConfigsRequest, *kmsg.AlterConfigsRequest:
				if refuses == 0 {
					return theirs.alter(req)
				}
				r := readAlter(req)
				var results []altered
				for _, res := range r.resources {
					results = append(results, altered{typ: res.typ, name: res.name, code: refuses})
				}
				return r.answer(results)
			case *kmsg.ListConfigResourcesRequest:
				resp := req.ResponseKind().(*kmsg.ListConfigResourcesResponse)
				resp.ConfigResources = []kmsg.ListConfigResourcesResponseConfigResource{{Name: "m", Type: 16}}
				if req.Version > 0 {
					resp.ConfigResources = append(resp.ConfigResources, kmsg.ListConfigResourcesResponseConfigResource{Name: "both", Type: 32})
				}
				return resp
			}
			return others(h, req)
		}
	})
	g, _ := start(t, svc, []string{up.addr()})
	return g, up, theirs, svc
}

// old makes a cluster one that does not know GROUP resources, as before Kafka 4.0.
func old(s *scripted) {
	s.versions[describeConfigs], s.versions[listConfigResources] = [2]int16{0, 4}, [2]int16{0, 0}
}

func described(resp *kmsg.DescribeConfigsResponse) string {
	var lines []string
	for _, r := range resp.Resources {
		line := fmt.Sprintf("%d %s=%d", r.ResourceType, r.ResourceName, r.ErrorCode)
		for _, c := range r.Configs {
			line += fmt.Sprintf(" %s:%s", c.Name, *c.Value)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

// What is configured for a group comes from two places. A cluster that does not know such configurations has no part in it.
func TestDescribeConfigsOfGroups(t *testing.T) {
	type asked struct {
		t     kmsg.ConfigResourceType
		name  string
		names []string
	}
	const group, topic = kmsg.ConfigResourceTypeGroupConfig, kmsg.ConfigResourceTypeTopic
	for _, c := range []struct {
		name    string
		refuses int16
		old     bool // the cluster does not know groups as something that is configured
		ask     []asked
		want    string
		up      int // resources that the cluster is asked about
	}{
		{"all", 0, false, []asked{{group, "g", nil}}, "32 g=0 consumer.a:theirs streams.a:ours", 1},
		{"names of ours", 0, false, []asked{{group, "g", []string{"streams.a", "streams.b"}}}, "32 g=0 streams.a:ours", 0},
		{"names of the cluster's", 0, false, []asked{{group, "g", []string{"consumer.a"}}}, "32 g=0 consumer.a:theirs", 1},
		{"no names", 0, false, []asked{{group, "g", []string{}}}, "32 g=0 consumer.a:theirs streams.a:ours", 1},
		{"before an old cluster", 42, true, []asked{{group, "g", nil}}, "32 g=0 streams.a:ours", 0},
		{"denied by the cluster", 30, false, []asked{{group, "g", nil}}, "32 g=30", 1},
		{"with a topic", 0, false, []asked{{group, "g", nil}, {topic, "t", nil}}, "2 t=0 streams.a:theirs consumer.a:theirs; 32 g=0 consumer.a:theirs streams.a:ours", 2},
		{"with a topic before an old cluster", 42, true, []asked{{group, "g", nil}, {topic, "t", nil}, {group, "h", []string{"consumer.a"}}},
			"2 t=0 streams.a:theirs consumer.a:theirs; 32 g=0 streams.a:ours; 32 h=0", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, up, _, _ := startWithConfigs(t, c.refuses)
			if c.old {
				up.change(old)
			}
			r := kmsg.NewPtrDescribeConfigsRequest()
			for _, a := range c.ask {
				res := kmsg.NewDescribeConfigsRequestResource()
				res.ResourceType, res.ResourceName, res.ConfigNames = a.t, a.name, a.names
				r.Resources = append(r.Resources, res)
			}
			if got := described(ask[*kmsg.DescribeConfigsResponse](t, raw(t, g.Addr().String()), 4, r)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			n := 0
			for _, r := range up.requests(describeConfigs) {
				n += len(r.(*kmsg.DescribeConfigsRequest).Resources)
			}
			if n != c.up {
				t.Errorf("the cluster was asked about %d resources, want %d", n, c.up)
			}
		})
	}
}

// changes are "op name=value": those of IncrementalAlterConfigs.
func alterRequestOf(groups map[string][]string) *kmsg.IncrementalAlterConfigsRequest {
	r := kmsg.NewPtrIncrementalAlterConfigsRequest()
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		res := kmsg.NewIncrementalAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
		for _, change := range groups[group] {
			c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			name, value, set := strings.Cut(change, "=")
			c.Name = name
			if set {
				c.Value = &value
			} else {
				c.Op = kmsg.IncrementalAlterConfigOpDelete
			}
			res.Configs = append(res.Configs, c)
		}
		r.Resources = append(r.Resources, res)
	}
	return r
}

func texts(results []altered) string {
	var lines []string
	for _, a := range results {
		line := fmt.Sprintf("%s=%d", a.name, a.code)
		if a.text != nil {
			line += " " + *a.text
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

func (g groupConfigs) String() string { return fmt.Sprint(map[string]string(g)) }

// A change of both parts of a group's configuration is made in both places or in none.
func TestAlterConfigsOfGroups(t *testing.T) {
	for _, c := range []struct {
		name         string
		refuses      int16
		groups       map[string][]string
		want         string
		ours, theirs string
		up           int // requests to the cluster
	}{
		{"ours", 0, map[string][]string{"g": {"streams.a=1"}}, "g=0", "map[g streams.a:1]", "map[]", 0},
		{"the cluster's", 0, map[string][]string{"g": {"consumer.a=1"}}, "g=0", "map[]", "map[g consumer.a:1]", 1},
		{"nothing", 0, map[string][]string{"g": {}}, "g=0", "map[]", "map[]", 0},
		{"a group each", 0, map[string][]string{"g": {"streams.a=1"}, "h": {"consumer.a=1"}}, "g=0; h=0", "map[g streams.a:1]", "map[h consumer.a:1]", 1},
		{"both", 0, map[string][]string{"g": {"streams.a=1", "consumer.a=2"}}, "g=0", "map[g streams.a:1]", "map[g consumer.a:2]", 1},
		{"both, ours refused", 0, map[string][]string{"g": {"streams.a=bad", "consumer.a=2"}}, "g=40 bad streams.a", "map[]", "map[]", 0},
		{"both, theirs refused", 0, map[string][]string{"g": {"streams.a=1", "consumer.a=bad"}}, "g=40 bad consumer.a", "map[]", "map[]", 1},
		{"both, one group refused here", 0, map[string][]string{"g": {"streams.a=bad", "consumer.a=2"}, "h": {"streams.a=1", "consumer.a=2"}},
			"g=40 bad streams.a; h=0", "map[h streams.a:1]", "map[h consumer.a:2]", 1},
		{"both, unknown to the cluster", 42, map[string][]string{"g": {"streams.a=1", "consumer.a=2"}}, "g=42", "map[]", "map[]", 1},
		{"a name twice", 0, map[string][]string{"g": {"streams.a=1", "streams.a=2"}}, "g=42 Error due to duplicate config keys", "map[]", "map[]", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, up, theirs, svc := startWithConfigs(t, c.refuses)
			cl := raw(t, g.Addr().String())
			asking := alterRequestOf(c.groups)
			asking.ValidateOnly = true
			if got := texts(readAltered(ask[*kmsg.IncrementalAlterConfigsResponse](t, cl, 1, asking))); got != c.want || len(svc.configs)+len(theirs) > 0 {
				t.Errorf("only asked: %s, and then there is %v, %v", got, svc.configs, theirs)
			}
			if got := texts(readAltered(ask[*kmsg.IncrementalAlterConfigsResponse](t, cl, 1, alterRequestOf(c.groups)))); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if svc.configs.String() != c.ours || theirs.String() != c.theirs {
				t.Errorf("ours %v, theirs %v\nwant %s, %s", svc.configs, theirs, c.ours, c.theirs)
			}
			if n := len(up.requests(incrementalAlterConfigs)); n != 2*c.up {
				t.Errorf("%d requests to the cluster", n)
			}
		})
	}
	t.Run("a group twice, a value that is missing, an operation that is none", func(t *testing.T) {
		g, up, _, svc := startWithConfigs(t, 0)
		cl := raw(t, g.Addr().String())
		twice := alterRequestOf(map[string][]string{"g": {"streams.a=1"}})
		twice.Resources = append(twice.Resources, twice.Resources[0])
		const each = "g=42 Each resource must appear at most once."
		if got := texts(readAltered(ask[*kmsg.IncrementalAlterConfigsResponse](t, cl, 1, twice))); got != each+"; "+each {
			t.Errorf("twice: %s", got)
		}
		null := alterRequestOf(map[string][]string{"g": {"streams.a", "streams.b", "streams.c"}})
		null.Resources[0].Configs[0].Op, null.Resources[0].Configs[2].Op = kmsg.IncrementalAlterConfigOpSet, kmsg.IncrementalAlterConfigOpAppend
		if got := texts(readAltered(ask[*kmsg.IncrementalAlterConfigsResponse](t, cl, 1, null))); got != "g=42 Null value not supported for : streams.a, streams.c" {
			t.Errorf("null: %s", got)
		}
		odd := alterRequestOf(map[string][]string{"g": {"streams.a=1"}})
		odd.Resources[0].Configs[0].Op = 9
		if got := texts(readAltered(ask[*kmsg.IncrementalAlterConfigsResponse](t, cl, 1, odd))); got != "g=-1" {
			t.Errorf("odd: %s", got)
		}
		if len(up.requests(incrementalAlterConfigs)) > 0 || len(svc.configs) > 0 {
			t.Errorf("something was changed: %v", svc.configs)
		}
	})
}

// AlterConfigs replaces everything that is configured for a group, in both places.
func TestAlterConfigsReplacesBothParts(t *testing.T) {
	request := func(names ...string) *kmsg.AlterConfigsRequest {
		r := kmsg.NewPtrAlterConfigsRequest()
		res := kmsg.NewAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, "g"
		for _, n := range names {
			c := kmsg.NewAlterConfigsRequestResourceConfig()
			name, value, _ := strings.Cut(n, "=")
			c.Name, c.Value = name, &value
			res.Configs = append(res.Configs, c)
		}
		r.Resources = append(r.Resources, res)
		return r
	}
	for _, c := range []struct {
		refuses      int16
		old          bool
		names        []string
		want         string
		ours, theirs string
	}{
		{0, false, []string{"streams.a=2", "consumer.a=3"}, "g=0", "map[g streams.a:2]", "map[g consumer.a:3]"},
		{0, false, []string{"streams.a=2"}, "g=0", "map[g streams.a:2]", "map[]"},
		{0, false, []string{"consumer.a=3"}, "g=0", "map[]", "map[g consumer.a:3]"},
		{0, false, nil, "g=0", "map[]", "map[]"},
		{0, false, []string{"streams.a=bad"}, "g=40 bad streams.a", "map[g streams.a:1]", "map[g consumer.a:1]"},
		{0, false, []string{"streams.a=2", "consumer.a=bad"}, "g=40 bad consumer.a", "map[g streams.a:1]", "map[g consumer.a:1]"},
		{42, true, []string{"streams.a=2"}, "g=0", "map[g streams.a:2]", "map[g consumer.a:1]"},
		{42, false, []string{"streams.a=2"}, "g=0", "map[g streams.a:2]", "map[g consumer.a:1]"},
		{42, true, []string{"streams.a=2", "consumer.a=3"}, "g=42", "map[g streams.a:1]", "map[g consumer.a:1]"},
		{30, false, []string{"streams.a=2"}, "g=30", "map[g streams.a:1]", "map[g consumer.a:1]"},
	} {
		g, up, theirs, svc := startWithConfigs(t, c.refuses)
		if c.old {
			up.change(old)
		}
		svc.configs["g streams.a"], theirs["g consumer.a"] = "1", "1"
		if got := texts(readAltered(ask[*kmsg.AlterConfigsResponse](t, raw(t, g.Addr().String()), 2, request(c.names...)))); got != c.want {
			t.Errorf("%d %q\ngot  %s\nwant %s", c.refuses, c.names, got, c.want)
		}
		if svc.configs.String() != c.ours || theirs.String() != c.theirs {
			t.Errorf("%d %q: ours %v, theirs %v\nwant %s, %s", c.refuses, c.names, svc.configs, theirs, c.ours, c.theirs)
		}
	}
}

// Groups with a configuration are listed whatever the cluster can do.
func TestListConfigResources(t *testing.T) {
	for _, c := range []struct {
		most    int16 // of the cluster; -1: it does not know the request
		version int16
		types   []int8
		want    string
	}{
		{1, 1, nil, "0 16:m 32:both 32:ours"},
		{1, 1, []int8{32}, "0 16:m 32:both 32:ours"}, // the script looks at no types
		{1, 1, []int8{2}, "0 16:m 32:both"},
		{1, 0, nil, "0 16:m"},
		{0, 1, nil, "0 16:m 32:both 32:ours"},
		{0, 1, []int8{32}, "0 32:both 32:ours"},
		{0, 1, []int8{16}, "0 16:m"},
		{0, 1, []int8{2}, "35"},
		{0, 0, nil, "0 16:m"},
		{-1, 1, nil, "0 32:both 32:ours"},
		{-1, 1, []int8{16}, "0"},
		{-1, 0, nil, "0"},
	} {
		g, up, _, _ := startWithConfigs(t, 0)
		up.change(func(s *scripted) {
			s.versions[listConfigResources] = [2]int16{0, c.most}
			if c.most < 0 {
				delete(s.versions, listConfigResources)
			}
		})
		cl := raw(t, g.Addr().String())
		v := ask[*kmsg.ApiVersionsResponse](t, cl, 3, versionsRequest())
		if i := slices.IndexFunc(v.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == listConfigResources }); i < 0 || v.ApiKeys[i].MaxVersion != 1 {
			t.Errorf("before a cluster that has %d, ListConfigResources is not offered in version 1", c.most)
		}
		r := kmsg.NewPtrListConfigResourcesRequest()
		r.ResourceTypes = c.types
		resp := ask[*kmsg.ListConfigResourcesResponse](t, cl, c.version, r)
		got := fmt.Sprint(resp.ErrorCode)
		var names []string
		for _, x := range resp.ConfigResources {
			names = append(names, fmt.Sprintf(" %d:%s", x.Type, x.Name))
		}
		slices.Sort(names)
		if got += strings.Join(names, ""); got != c.want {
			t.Errorf("cluster %d, version %d, types %v\ngot  %s\nwant %s", c.most, c.version, c.types, got, c.want)
		}
	}
}

func versionsRequest() *kmsg.ApiVersionsRequest {
	r := kmsg.NewPtrApiVersionsRequest()
	r.ClientSoftwareName, r.ClientSoftwareVersion = "test", "1"
	return r
}
