package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
	"streamkeeper/internal/wire"
)

// idleProbes are one idle group of each shard, which have offsets of the topic that stays.
func idleProbes(b bulk, s samples) []*group {
	var probes []*group
	for _, groups := range b.byPartition(shardsTotal) {
		for _, i := range groups {
			if i%b.gone != 0 {
				probes = append(probes, b.group(i, s))
				break
			}
		}
	}
	return probes
}

// fetchSample reads a committed offset, which must be what was written.
func (g *group) fetchSample(ctx context.Context, c *wire.Client) error {
	offset, err := g.fetched(ctx, c)
	if err == nil && offset != sampleOffset {
		err = fmt.Errorf("group %s: OffsetFetch says %d, committed was %d", g.id, offset, sampleOffset)
	}
	return err
}

// answerWithin asks for each group until it is answered.
func answerWithin(ctx context.Context, addr string, groups []*group, limit time.Duration, do func(*group, context.Context, *wire.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var c *wire.Client
	defer func() {
		if c != nil {
			c.Close()
		}
	}()
	for _, g := range groups {
		var last error
		for {
			if ctx.Err() != nil {
				return fmt.Errorf("group %s is not answered within %s: %v", g.id, limit, last)
			}
			if c == nil {
				var err error
				if c, err = wire.Dial(ctx, addr, "bench"); err != nil {
					c, last = nil, err
					pause(ctx, probeRetry)
					continue
				}
			}
			err := do(g, ctx, c)
			if err == nil {
				break
			}
			if errors.Is(err, errNoOffset) {
				return err
			}
			last = err
			if refused := (*kerr.Error)(nil); !errors.As(err, &refused) {
				c.Close() // after a broken exchange the connection is of no use
				c = nil
			}
			pause(ctx, probeRetry)
		}
	}
	return nil
}

const (
	// beatPause is the pace of the heartbeats that are timed: they are to notice a busy loop, and not to make one.
	beatPause = 2 * time.Millisecond
	// beatAgain is how soon one that was told to try again is sent again.
	beatAgain = 5 * time.Millisecond
)

// beatWhile sends heartbeats of the groups in turn, one at a time, while do runs, and returns how long each took until it was answered.
func beatWhile(t *testing.T, addr string, groups []*group, do func()) []time.Duration {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c, err := wire.Dial(ctx, addr, "bench")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var took []time.Duration
	var failed error
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			began := time.Now()
			for {
				err := groups[i%len(groups)].beat(t.Context(), c)
				if err == nil {
					break
				}
				if e := (*kerr.Error)(nil); !errors.As(err, &e) || !e.Retriable {
					failed = err
					return
				}
				pause(t.Context(), beatAgain)
			}
			took = append(took, time.Since(began))
			pause(ctx, beatPause)
		}
	})
	do()
	cancel()
	wg.Wait()
	if failed != nil {
		t.Fatalf("a heartbeat beside it: %v", failed)
	}
	return sorted(took)
}

// listAll lists all groups of one node, and says how long the answer is.
func listAll(t *testing.T, addr string) (groups []string, bytes int, took time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), growthWithin)
	defer cancel()
	c, err := wire.Dial(ctx, addr, "bench")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	req := kmsg.NewPtrListGroupsRequest()
	req.SetVersion(5)
	began := time.Now()
	id, err := c.Send(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	frame, err := c.ReceiveRaw(ctx)
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	took = time.Since(began)
	got, body, err := wire.ParseResponseHeader(req.Key(), req.GetVersion(), frame)
	if err != nil || got != id {
		t.Fatalf("list: correlation id %d, want %d: %v", got, id, err)
	}
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	resp.SetVersion(req.GetVersion())
	if err := resp.ReadFrom(body); err != nil { // longer than wire decodes
		t.Fatal(err)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		t.Fatalf("list: %v", err)
	}
	for _, g := range resp.Groups {
		groups = append(groups, g.Group)
	}
	return groups, len(frame), took
}

// describeSome describes idle groups one after the other.
func describeSome(t *testing.T, addr string, groups []*group) []time.Duration {
	t.Helper()
	return phase(t, addr, 1, groups, 0, func(g *group, ctx context.Context, c *wire.Client) error {
		req := kmsg.NewPtrStreamsGroupDescribeRequest()
		req.Groups = []string{g.id}
		kresp, err := c.Exchange(ctx, req)
		if err != nil {
			return err
		}
		d := kresp.(*kmsg.StreamsGroupDescribeResponse).Groups[0]
		if err := kerr.ErrorForCode(d.ErrorCode); err != nil {
			return err
		}
		if d.State != "Empty" || d.Topology == nil {
			return fmt.Errorf("described as %s with topology %v", d.State, d.Topology)
		}
		return nil
	}).latencies
}

// diskMiB is the size of the files below a directory whose path has the part in it.
func diskMiB(t *testing.T, dir, part string) float64 {
	t.Helper()
	var bytes int64
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.Contains(path, part) {
			return nil // files come and go
		}
		// Kafka's index files are as long as they may become, and mostly holes.
		if info, err := d.Info(); err == nil && !strings.HasSuffix(path, "index") {
			bytes += info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return float64(bytes) / (1 << 20)
}

// peakMiB is the most memory that a process has held since the last call of resetPeak, or its start.
func peakMiB(t *testing.T, pid int) float64 { return statusMiB(t, pid, "VmHWM:") }

// resetPeak forgets the most; see proc(5), clear_refs.
func resetPeak(t *testing.T, pid int) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		t.Logf("the peak of memory is the one since the start: %v", err)
	}
}

// stands waits until a log topic has not grown for a while, or the deadline is over, and returns how many records have come since before.
func stands(t *testing.T, broker, topic string, still time.Duration, deadline time.Time) (end int64) {
	t.Helper()
	sum := func() (n int64) {
		for _, e := range kafkatest.EndOffsets(t, broker, topic) {
			n += e
		}
		return n
	}
	end = sum()
	for since := time.Now(); time.Since(since) < still && time.Now().Before(deadline); {
		time.Sleep(200 * time.Millisecond) // nothing tells of a log that grows no more
		if now := sum(); now != end {
			end, since = now, time.Now()
		}
	}
	return end
}

// missing are the groups of b that are not in the sorted list.
func (b bulk) missing(list []string) (n int) {
	for i := range b.groups {
		if _, ok := slices.BinarySearch(list, b.id(i)); !ok {
			n++
		}
	}
	return n
}
