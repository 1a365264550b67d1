package main

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// One node that refuses, or is down, hides no group of the others; that the list may lack some is told all the same.
func TestListShowsWhatTheOtherNodesHave(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(2))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.ControlKey(int16(kmsg.ListGroups), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
		if c.CurrentNode() == 1 {
			resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
			return resp, nil, true
		}
		g := kmsg.NewListGroupsResponseGroup()
		g.Group, g.ProtocolType, g.GroupType, g.GroupState = "orders", "streams", "streams", "Stable"
		resp.Groups = append(resp.Groups, g)
		return resp, nil, true
	})
	d := &dev{bootstrap: c.ListenAddrs()[0]}
	for output, want := range map[string]string{"text": "orders  Stable", "json": `"group": "orders"`} {
		stdout, stderr, code := execute(t, d, "list", "-o", output)
		if code != exitFailure || !strings.Contains(stdout, want) || !strings.Contains(stderr, "list the groups of node "+c.ListenAddrs()[1]) || !strings.Contains(stderr, "CLUSTER_AUTHORIZATION_FAILED") {
			t.Errorf("%s: code %d\nstdout %s\nstderr %s", output, code, stdout, stderr)
		}
	}
}

// A state that no group can have is no way to ask for nothing.
func TestListKnowsTheStates(t *testing.T) {
	d := &dev{bootstrap: "127.0.0.1:1"} // nobody is asked
	out, err, code := execute(t, d, "list", "--state", "empty", "--state", "nosuch")
	if want := "streamkeeper: --state \"nosuch\": the states of a streams group are Empty, NotReady, Assigning, Reconciling, Stable\n"; code != exitUsage || out != "" || err != want {
		t.Errorf("code %d, stdout %q, stderr %q", code, out, err)
	}
}
