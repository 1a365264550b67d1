package gateway

import (
	"bufio"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

// captured is a frame between a real client and a real broker.
type captured struct {
	Dir                string // "req" or "resp"
	APIKey, APIVersion int16
	Corr               int32
	Hex                string
	frame              []byte // without length prefix
}

func readCapture(t *testing.T, file string) []captured {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 16<<20)
	var all []captured
	for lines.Scan() {
		var c captured
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		if c.frame, err = hex.DecodeString(c.Hex); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// capturedVersions returns what a real broker answered to ApiVersions version 4.
func capturedVersions(t *testing.T, file string) *kmsg.ApiVersionsResponse {
	t.Helper()
	for _, c := range readCapture(t, file) {
		if c.Dir != "resp" || c.APIKey != apiVersions {
			continue
		}
		resp, err := parseApiVersions(c.APIVersion, c.frame)
		if err != nil {
			t.Fatal(err)
		}
		if resp.ErrorCode == 0 {
			return resp
		}
	}
	t.Fatalf("%s: no answer to ApiVersions", file)
	return nil
}

func rangesOf(list []kmsg.ApiVersionsResponseApiKey) map[int16]string {
	m := map[int16]string{}
	for _, k := range list {
		m[k.ApiKey] = fmt.Sprintf("%d-%d", k.MinVersion, k.MaxVersion)
	}
	return m
}

// Captured: a 3.9 broker, a 4.2 one, and a 4.4 one with the streams protocol switched off.
func TestVersionsOfRealBrokersAreMerged(t *testing.T) {
	changed := map[string]map[int16]string{ // what differs from the broker's own answer
		"testdata/wire-old-3.9-plain.jsonl.gz":        {18: "0-5", 42: "0-3", 74: "0-1", 88: "0-1", 89: "0-1"},
		"testdata/wire-old-4.2-plain.jsonl.gz":        {18: "0-5", 42: "0-3", 88: "0-1", 89: "0-1"},
		"testdata/wire-old-4.4-protocol-off.jsonl.gz": {93: ""},
	}
	for file, want := range changed {
		t.Run(file, func(t *testing.T) {
			resp := capturedVersions(t, file)
			var up versions
			for _, k := range resp.ApiKeys {
				up[k.ApiKey].min, up[k.ApiKey].max, up[k.ApiKey].known = k.MinVersion, k.MaxVersion, true
			}
			before, after := rangesOf(resp.ApiKeys), rangesOf(offered(&up, true, false))
			for key := range int16(kmsg.MaxKey + 1) {
				expect := before[key]
				if w, ok := want[key]; ok {
					expect = w
				}
				if after[key] != expect {
					t.Errorf("%s (%d): the broker says %q, the gateway %q, want %q", kmsg.NameForKey(key), key, before[key], after[key], expect)
				}
			}
		})
	}
}

// Pushes of topology descriptions are offered where they are kept, whatever the cluster has, and nothing else changes.
func TestTopologyUpdateIsOfferedWhereDescriptionsAreKept(t *testing.T) {
	for _, known := range []bool{false, true} {
		var up versions
		up[streamsTopologyUpdate].known, up[streamsTopologyUpdate].max = known, 3
		with, without := rangesOf(offered(&up, true, true)), rangesOf(offered(&up, true, false))
		if with[streamsTopologyUpdate] != "0-0" || without[streamsTopologyUpdate] != "" {
			t.Errorf("cluster has it %v: offered %q with a plugin, %q without", known, with[streamsTopologyUpdate], without[streamsTopologyUpdate])
		}
		delete(with, streamsTopologyUpdate)
		delete(without, streamsTopologyUpdate)
		if !maps.Equal(with, without) {
			t.Errorf("something else changed: %v, %v", with, without)
		}
	}
}

func TestVersionsAreRaisedOnlyWhereTheyAreConverted(t *testing.T) {
	for _, c := range []struct {
		name          string
		key, min, max int16
		want          string
	}{
		{"OffsetCommit of 3.0 to 3.5", offsetCommit, 0, 8, "0-9"},
		{"OffsetFetch of 3.0 to 3.5", offsetFetch, 0, 8, "0-9"},
		{"OffsetFetch of 3.6 and later", offsetFetch, 1, 9, "1-9"},
		{"OffsetFetch of 4.x", offsetFetch, 1, 10, "1-10"},
		{"OffsetFetch with one group only", offsetFetch, 0, 7, "0-7"},
		{"ListGroups of 2.6 to 3.7", listGroups, 0, 4, "0-5"},
		{"ListGroups without a states filter", listGroups, 0, 3, "0-3"},
		{"Metadata of a future broker", metadata, 0, 99, "0-13"},
		{"Fetch of a future broker", fetch, 4, 99, "4-18"},
		{"Fetch that only knows versions we can't walk", fetch, 98, 99, ""},
		{"a key that passes unread, of a future broker", 19, 2, 99, "2-99"},
		{"JoinGroup", joinGroup, 0, 9, "0-9"},
	} {
		var up versions
		up[c.key].min, up[c.key].max, up[c.key].known = c.min, c.max, true
		if got := rangesOf(offered(&up, false, false))[c.key]; got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestApiVersionsOnTheWire(t *testing.T) {
	up := startScripted(t, "127.0.0.1:0", nil)
	g, _ := start(t, newService(), []string{up.addr()})
	request := func(version int16, change func(*kmsg.ApiVersionsRequest)) *kmsg.ApiVersionsRequest {
		req := kmsg.NewPtrApiVersionsRequest()
		req.SetVersion(version)
		req.ClientSoftwareName, req.ClientSoftwareVersion = "some-client", "1.2.3"
		if change != nil {
			change(req)
		}
		return req
	}
	check := func(cluster string, node int32) func(*kmsg.ApiVersionsRequest) {
		return func(r *kmsg.ApiVersionsRequest) { r.ClusterID, r.NodeID = &cluster, node }
	}
	own, broker := g.Addr().String(), brokerAddr(t, g, 1)
	for _, c := range []struct {
		name     string
		addr     string
		req      *kmsg.ApiVersionsRequest
		code     int16
		keys     bool
		features []string // supported
	}{
		{"v0", own, request(0, nil), 0, true, nil},
		{"v3 hides features from zero", own, request(3, nil), 0, true, []string{"from.one"}},
		{"v4", own, request(4, nil), 0, true, []string{"from.zero", "from.one"}},
		{"v5 without a check", own, request(5, nil), 0, true, []string{"from.zero", "from.one"}},
		{"v5, the own node", own, request(5, check("scripted", testNode)), 0, true, []string{"from.zero", "from.one"}},
		{"v5, a broker's listener", broker, request(5, check("scripted", 1)), 0, true, []string{"from.zero", "from.one"}},
		{"v5, the broker's id at the own node", own, request(5, check("scripted", 1)), 129, false, nil},
		{"v5, another broker's id", broker, request(5, check("scripted", 2)), 129, false, nil},
		{"v5, another cluster", broker, request(5, check("other", 1)), 129, false, nil},
		{"v5, cluster without node", own, request(5, func(r *kmsg.ApiVersionsRequest) { r.ClusterID = kmsg.StringPtr("scripted") }), 42, false, nil},
		{"v5, node without cluster", own, request(5, func(r *kmsg.ApiVersionsRequest) { r.NodeID = 1 }), 42, false, nil},
		{"bad software name", own, request(3, func(r *kmsg.ApiVersionsRequest) { r.ClientSoftwareName = "-x" }), 42, false, nil},
		{"empty software version", own, request(4, func(r *kmsg.ApiVersionsRequest) { r.ClientSoftwareVersion = "" }), 42, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := ask[*kmsg.ApiVersionsResponse](t, raw(t, c.addr), c.req.Version, c.req)
			if resp.ErrorCode != c.code || (len(resp.ApiKeys) > 0) != c.keys {
				t.Fatalf("error %d and %d keys", resp.ErrorCode, len(resp.ApiKeys))
			}
			var features []string
			for _, f := range resp.SupportedFeatures {
				features = append(features, f.Name)
			}
			if !slices.Equal(features, c.features) {
				t.Errorf("supported features %v, want %v", features, c.features)
			}
			if c.keys && c.req.Version >= 3 && (resp.FinalizedFeaturesEpoch != 77 || len(resp.FinalizedFeatures) != 1 || resp.FinalizedFeatures[0].MaxVersionLevel != 2) {
				t.Errorf("finalized features %v of epoch %d are not the cluster's", resp.FinalizedFeatures, resp.FinalizedFeaturesEpoch)
			}
		})
	}
	for _, r := range up.requests(apiVersions) {
		if v := r.(*kmsg.ApiVersionsRequest); v.ClusterID != nil || v.NodeID != -1 {
			t.Errorf("the cluster was asked to compare cluster %v and node %d, which are ours", v.ClusterID, v.NodeID)
		}
	}
	if !slices.ContainsFunc(up.requests(apiVersions), func(r kmsg.Request) bool {
		return r.(*kmsg.ApiVersionsRequest).ClientSoftwareName == "some-client"
	}) {
		t.Error("the broker never sees the client's software")
	}
}

func TestNewerApiVersionsIsAnsweredInVersionZero(t *testing.T) {
	up := startScripted(t, "127.0.0.1:0", nil)
	g, _ := start(t, newService(), []string{up.addr()})
	cl := raw(t, g.Addr().String())
	// Version 6 does not exist; its header is flexible, the body is anything.
	frame := []byte{0, 0, 0, 14, 0, 18, 0, 6, 0, 0, 0, 9, 0, 1, 'x', 0, 1, 2}
	if err := cl.SendRaw(t.Context(), frame); err != nil {
		t.Fatal(err)
	}
	got, err := cl.ReceiveRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []byte{0, 0, 0, 9, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 5}
	if !slices.Equal(got, want) {
		t.Fatalf("% x, want % x", got, want)
	}
	// The connection goes on.
	ask[*kmsg.ApiVersionsResponse](t, cl, 2, kmsg.NewPtrApiVersionsRequest())
}

// A 3.9 broker knows ApiVersions up to 4, older ones less: they answer in version 0 and are asked again.
func TestOldBrokersAreAskedInTheirVersion(t *testing.T) {
	for most := int16(0); most <= 5; most++ {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			up := startScripted(t, "127.0.0.1:0", nil)
			up.change(func(s *scripted) { s.versions[apiVersions] = [2]int16{0, most} })
			g, _ := start(t, newService(), []string{up.addr()})
			req := kmsg.NewPtrApiVersionsRequest()
			req.ClientSoftwareName, req.ClientSoftwareVersion = "c", "1"
			resp := ask[*kmsg.ApiVersionsResponse](t, raw(t, g.Addr().String()), 5, req)
			if got := rangesOf(resp.ApiKeys)[metadata]; got != fmt.Sprintf("0-%d", wire.MaxVersion(metadata)) {
				t.Fatalf("Metadata %q", got)
			}
		})
	}
}
