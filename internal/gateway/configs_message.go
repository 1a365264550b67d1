package gateway

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/coordinator"
)

// AlterConfigs and IncrementalAlterConfigs in one form: the first replaces all configurations of a resource, the second changes some.

type alterRequest struct {
	like         kmsg.Request // what it was read from
	replaces     bool
	validateOnly bool
	resources    []alterResource
}

type alterResource struct {
	typ     kmsg.ConfigResourceType
	name    string
	configs []alterConfig
}

type alterConfig struct {
	name  string
	op    kmsg.IncrementalAlterConfigOp // AlterConfigs has SET alone
	value *string
}

// altered is what became of one resource.
type altered struct {
	typ  kmsg.ConfigResourceType
	name string
	code int16
	text *string
}

func (r alterResource) isGroup() bool { return r.typ == kmsg.ConfigResourceTypeGroupConfig }

// deletes says that a change is of configurations, and deletes all that it names.
func (r alterResource) deletes() bool {
	return len(r.configs) > 0 && !slices.ContainsFunc(r.configs, func(x alterConfig) bool { return x.op != kmsg.IncrementalAlterConfigOpDelete })
}

// resource is what a resource is found by: one request may have a hundred thousand of them.
type resource struct {
	typ  kmsg.ConfigResourceType
	name string
}

func (r alterResource) resource() resource { return resource{r.typ, r.name} }
func (a altered) resource() resource       { return resource{a.typ, a.name} }

// times counts how often each resource is in the request.
func (r alterRequest) times() map[resource]int {
	times := make(map[resource]int, len(r.resources))
	for _, x := range r.resources {
		times[x.resource()]++
	}
	return times
}

// byResource has the resources by what they are found by.
func (r alterRequest) byResource() map[resource]alterResource {
	by := make(map[resource]alterResource, len(r.resources))
	for _, x := range r.resources {
		by[x.resource()] = x
	}
	return by
}

// split takes the names of streams groups and the others apart.
func (r alterResource) split() (here, there alterResource) {
	ours := func(x alterConfig) bool { return coordinator.IsStreamsConfig(x.name) }
	here, there = r, r
	here.configs = slices.DeleteFunc(slices.Clone(r.configs), func(x alterConfig) bool { return !ours(x) })
	there.configs = slices.DeleteFunc(slices.Clone(r.configs), ours)
	return here, there
}

// none is the request without its resources.
func (r alterRequest) none() alterRequest {
	r.resources = nil
	return r
}

func readAlter(m kmsg.Request) alterRequest {
	r := alterRequest{like: m}
	switch m := m.(type) {
	case *kmsg.AlterConfigsRequest:
		r.replaces, r.validateOnly = true, m.ValidateOnly
		for _, res := range m.Resources {
			a := alterResource{typ: res.ResourceType, name: res.ResourceName}
			for _, x := range res.Configs {
				a.configs = append(a.configs, alterConfig{name: x.Name, value: x.Value})
			}
			r.resources = append(r.resources, a)
		}
	case *kmsg.IncrementalAlterConfigsRequest:
		r.validateOnly = m.ValidateOnly
		for _, res := range m.Resources {
			a := alterResource{typ: res.ResourceType, name: res.ResourceName}
			for _, x := range res.Configs {
				a.configs = append(a.configs, alterConfig{x.Name, x.Op, x.Value})
			}
			r.resources = append(r.resources, a)
		}
	}
	return r
}

// message is the request of the kind that it was read from.
func (r alterRequest) message() kmsg.Request {
	if r.replaces {
		m := kmsg.NewPtrAlterConfigsRequest()
		m.Version, m.ValidateOnly = r.like.GetVersion(), r.validateOnly
		for _, a := range r.resources {
			res := kmsg.NewAlterConfigsRequestResource()
			res.ResourceType, res.ResourceName = a.typ, a.name
			for _, x := range a.configs {
				c := kmsg.NewAlterConfigsRequestResourceConfig()
				c.Name, c.Value = x.name, x.value
				res.Configs = append(res.Configs, c)
			}
			m.Resources = append(m.Resources, res)
		}
		return m
	}
	m := kmsg.NewPtrIncrementalAlterConfigsRequest()
	m.Version, m.ValidateOnly = r.like.GetVersion(), r.validateOnly
	for _, a := range r.resources {
		res := kmsg.NewIncrementalAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName = a.typ, a.name
		for _, x := range a.configs {
			c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			c.Name, c.Op, c.Value = x.name, x.op, x.value
			res.Configs = append(res.Configs, c)
		}
		m.Resources = append(m.Resources, res)
	}
	return m
}

func readAltered(m kmsg.Response) (results []altered) {
	switch m := m.(type) {
	case *kmsg.AlterConfigsResponse:
		for _, r := range m.Resources {
			results = append(results, altered{r.ResourceType, r.ResourceName, r.ErrorCode, r.ErrorMessage})
		}
	case *kmsg.IncrementalAlterConfigsResponse:
		for _, r := range m.Resources {
			results = append(results, altered{r.ResourceType, r.ResourceName, r.ErrorCode, r.ErrorMessage})
		}
	}
	return results
}

// answer is the response to the request.
func (r alterRequest) answer(results []altered) kmsg.Response {
	if r.replaces {
		m := r.like.ResponseKind().(*kmsg.AlterConfigsResponse)
		for _, a := range results {
			res := kmsg.NewAlterConfigsResponseResource()
			res.ResourceType, res.ResourceName, res.ErrorCode, res.ErrorMessage = a.typ, a.name, a.code, a.text
			m.Resources = append(m.Resources, res)
		}
		return m
	}
	m := r.like.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	for _, a := range results {
		res := kmsg.NewIncrementalAlterConfigsResponseResource()
		res.ResourceType, res.ResourceName, res.ErrorCode, res.ErrorMessage = a.typ, a.name, a.code, a.text
		m.Resources = append(m.Resources, res)
	}
	return m
}
