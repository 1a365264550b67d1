//go:build unix

package gateway

import (
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A request with very many resources costs time in proportion to them: processor time, which
// does not depend on who else uses the machine. By pairs a hundred thousand of them took a core for a minute and
// a half; now it is less than a second.
func TestVeryManyConfigResources(t *testing.T) {
	const n, longest = 100_000, 30 * time.Second
	g, up, theirs, svc := startWithConfigs(t, 0)
	cl := raw(t, g.Addr().String())
	began := processorTime(t)
	same, both := kmsg.NewPtrIncrementalAlterConfigsRequest(), map[string][]string{}
	one := alterRequestOf(map[string][]string{"g": {"streams.a=1"}}).Resources[0]
	for i := range n {
		same.Resources = append(same.Resources, one)
		if i < n/2 {
			both[strconv.Itoa(i)] = []string{"streams.a=1", "consumer.a=2"}
		}
	}
	results := readAltered(ask[*kmsg.IncrementalAlterConfigsResponse](t, cl, 1, same))
	if len(results) != n || results[n-1].code != invalidRequest.Code {
		t.Errorf("%d results", len(results))
	}
	if took := processorTime(t) - began; took > longest {
		t.Fatalf("one group many times took %v", took)
	}
	results = readAltered(ask[*kmsg.IncrementalAlterConfigsResponse](t, cl, 1, alterRequestOf(both)))
	if bad := slices.IndexFunc(results, func(a altered) bool { return a.code != 0 }); len(results) != n/2 || bad >= 0 {
		t.Errorf("%d results, bad is %d", len(results), bad)
	}
	if len(theirs) != n/2 || len(svc.configs) != n/2 || len(up.requests(incrementalAlterConfigs)) != 1 {
		t.Errorf("%d there, %d here, by %d requests", len(theirs), len(svc.configs), len(up.requests(incrementalAlterConfigs)))
	}
	d := kmsg.NewPtrDescribeConfigsRequest()
	for i := range n {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, strconv.Itoa(i/2) // each twice
		d.Resources = append(d.Resources, r)
	}
	resp := ask[*kmsg.DescribeConfigsResponse](t, cl, 4, d)
	if bad := slices.IndexFunc(resp.Resources, func(r kmsg.DescribeConfigsResponseResource) bool { return len(r.Configs) != 2 }); len(resp.Resources) != n || bad >= 0 {
		t.Errorf("%d described, bad is %d", len(resp.Resources), bad)
	}
	if took := processorTime(t) - began; took > longest {
		t.Errorf("took %v", took)
	}
}

// processorTime is what this process has used so far.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
