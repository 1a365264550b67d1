package traces

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"streamkeeper/internal/kafkatest"
	"streamkeeper/plugin/faulty"
)

// requests are the parents of the plugin's calls, by operation; a cleanup cycle deletes, too.
var requests = map[string]string{"set": "StreamsGroupTopologyDescriptionUpdate", "get": "StreamsGroupDescribe", "delete": "DeleteGroups"}

const cycle = "cleanup cycle"

// outcomes are what a call's span must say, by what the plugin did (plugin/faulty). A call that was not waited for any more says it too.
var outcomes = map[string]struct {
	attributes []string
	failed     bool
	took       time.Duration // at least
}{
	"set ok":        {attributes: []string{"outcome=stored"}},
	"get ok":        {attributes: []string{"outcome=found"}},
	"delete ok":     {attributes: []string{"outcome=deleted"}},
	"set throw":     {attributes: []string{"outcome=panicked", "permanent=true", "error.message=panic: set fails, call 1"}, failed: true},
	"set nil":       {attributes: []string{"outcome=permanent", "permanent=true", "error.message=the plugin returned no future"}, failed: true},
	"set permanent": {attributes: []string{"outcome=permanent", "permanent=true", "error.message=set fails, call 1"}, failed: true},
	"set transient": {attributes: []string{"outcome=transient", "permanent=false", "error.message=set fails, call 1"}, failed: true},
	"set slow":      {attributes: []string{"outcome=late", "late.after=timed_out", "late.outcome=stored"}, failed: true, took: faulty.SlowAfter},
	"set hang":      {attributes: []string{"outcome=timed_out", "abandoned=true"}, failed: true, took: 4 * time.Second},
	"get error":     {attributes: []string{"outcome=transient", "error.message=get fails, call 1"}, failed: true},
	"delete error":  {attributes: []string{"outcome=transient", "error.message=delete fails, call 1"}, failed: true},
}

// eventually reads the store until the check finds nothing wrong: spans are on their way for a moment, and Jaeger indexes them.
func eventually(t *testing.T, s store, check func(all spans) []string) {
	t.Helper()
	kafkatest.Eventually(t, storyTimeout/4, func() error {
		all, err := s.spans()
		if err != nil {
			return err
		}
		if wrong := check(all); len(wrong) > 0 {
			return fmt.Errorf("%s\n--- spans of the plugin ---\n%s", strings.Join(wrong, "\n"), pluginSpans(all))
		}
		return nil
	})
}

func pluginSpans(all spans) spans {
	var found spans
	for _, s := range all {
		if strings.HasPrefix(s.Name, "plugin ") {
			found = append(found, s)
		}
	}
	return found
}

// checkFaulty: each call that the plugin got has exactly one span, which says what became of it, below what it was made for.
func checkFaulty(t *testing.T, s store, calls [][]string) {
	if len(calls) < 20 {
		t.Fatalf("the plugin got only %d calls: %q", len(calls), calls)
	}
	eventually(t, s, func(all spans) (wrong []string) {
		mine := spans{}
		for _, s := range pluginSpans(all) {
			if s.Attributes["plugin"] == "faulty" {
				mine = append(mine, s)
			}
		}
		if len(mine) != len(calls) {
			wrong = append(wrong, fmt.Sprintf("%d calls, %d spans", len(calls), len(mine)))
		}
		for _, c := range calls {
			operation, epoch, behaviour, group := c[0], c[1], c[2], c[3]
			want := outcomes[operation+" "+behaviour]
			attributes := append([]string{"group=" + group, "operation=" + operation}, want.attributes...)
			if operation != "delete" {
				attributes = append(attributes, "topology.epoch="+epoch)
			}
			found := all.named("plugin "+operation, attributes...)
			if len(found) != 1 {
				wrong = append(wrong, fmt.Sprintf("%d spans of %q with %q", len(found), c, attributes))
				continue
			}
			if f := found[0]; f.Failed != want.failed || f.Took < want.took {
				wrong = append(wrong, fmt.Sprintf("%q: failed %v, took %s: %s", c, f.Failed, f.Took, f))
			}
			wrong = append(wrong, checkParent(all, found[0])...)
		}
		return wrong
	})
}

// checkParent: a call hangs below its request, or below the cleanup cycle; a push is linked to the heartbeat that asked for it.
func checkParent(all spans, call span) (wrong []string) {
	operation, group := call.Attributes["operation"], call.Attributes["group"]
	parents := all.named(requests[operation])
	if operation == "delete" {
		parents = append(parents, all.named(cycle)...)
	}
	if !slices.ContainsFunc(parents, func(p span) bool { return all.below(call, p) }) {
		wrong = append(wrong, fmt.Sprintf("not below one of %d %s: %s", len(parents), requests[operation], call))
	}
	if operation != "set" {
		return wrong
	}
	if len(call.Links) != 1 {
		return append(wrong, fmt.Sprintf("%d links: %s", len(call.Links), call))
	}
	asked, ok := all.byID(call.Links[0])
	if !ok || asked.Name != "StreamsGroupHeartbeat" || asked.Attributes["group"] != group || asked.Trace == call.Trace {
		wrong = append(wrong, fmt.Sprintf("linked to %s: %s", asked, call))
	}
	return wrong
}

// checkLife: the calls of the two groups of lifeStory.
func checkLife(t *testing.T, s store, plugin, prefix string) {
	eventually(t, s, func(all spans) (wrong []string) {
		for _, g := range []string{prefix + "-" + groupGood, prefix + "-" + groupDeleted} {
			for operation, outcome := range map[string]string{"set": "stored", "get": "found", "delete": "deleted"} {
				found := all.named("plugin "+operation, "plugin="+plugin, "group="+g, "outcome="+outcome)
				if len(found) != 1 {
					wrong = append(wrong, fmt.Sprintf("%d spans of %s of %s", len(found), operation, g))
					continue
				}
				wrong = append(wrong, checkParent(all, found[0])...)
			}
		}
		// Nothing failed in the life of this group, and nothing says so.
		for _, s := range all {
			if s.Failed && s.Attributes["group"] == prefix+"-"+groupDeleted {
				wrong = append(wrong, "marked as an error: "+s.String())
			}
		}
		good := all.named("plugin delete", "group="+prefix+"-"+groupGood)
		if len(good) == 1 && !slices.ContainsFunc(all.named(cycle), func(c span) bool { return all.below(good[0], c) && c.Attributes["descriptions.deleted"] == "1" }) {
			wrong = append(wrong, "the expired group is not below a cleanup cycle that deleted one description")
		}
		return wrong
	})
}

// checkCatalogue: the trace goes on in the service that the plugin http called.
func checkCatalogue(t *testing.T, s store, prefix string) {
	eventually(t, s, func(all spans) (wrong []string) {
		for operation, method := range map[string]string{"set": "PUT", "get": "GET", "delete": "DELETE"} {
			call := all.named("plugin "+operation, "group="+prefix+"-"+groupGood)
			if len(call) != 1 {
				wrong = append(wrong, fmt.Sprintf("%d spans of %s", len(call), operation))
				continue
			}
			served := slices.DeleteFunc(all.named(method+" topologies"), func(c span) bool { return c.Parent != call[0].ID || c.Trace != call[0].Trace })
			if len(served) != 1 || served[0].Service != catalogueService || !strings.HasPrefix(served[0].Attributes["http.response.status_code"], "20") {
				wrong = append(wrong, fmt.Sprintf("the catalogue's spans of %s are %s", method, served))
			}
		}
		return wrong
	})
}
