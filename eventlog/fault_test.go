package eventlog

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var faultSeed = flag.Uint64("fault-seed", 0, "seed of TestFaultsLoseAndDoubleNothing; 0: a new one each time")

// attempt is one operation of the fault test: what was appended, and what its owner was told.
type attempt struct {
	p      int32
	name   string
	size   int
	offset int64 // if err is nil
	err    error
}

func (a attempt) records() []Raw {
	recs := make([]Raw, a.size)
	for i := range recs {
		recs[i] = kv(a.name, fmt.Sprintf("%d/%d", i, a.size))
	}
	return recs
}

// owner appends to one partition, claims anew when its writer has died, and keeps what it was told.
type owner struct {
	k        *Kafka
	p        int32
	name     string
	attempts []attempt
}

func (o *owner) run(t *testing.T, r *rand.Rand, ops int) {
	o.append(t, r, func(n int) bool { return n < ops })
}

func (o *owner) runUntil(t *testing.T, stop chan struct{}) {
	o.append(t, rand.New(rand.NewPCG(0, uint64(o.p))), func(n int) bool {
		select {
		case <-stop:
			return false
		case <-time.After(time.Millisecond): // a moderate load: the brokers share the machine with us
			return true
		}
	})
}

// append appends operations in bursts as long as more says so.
func (o *owner) append(t *testing.T, r *rand.Rand, more func(n int) bool) {
	var w Writer
	for n := 0; more(n); {
		for w == nil {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			next, err := o.k.Claim(ctx, o.p, Ownership{Instance: o.name})
			cancel()
			if err == nil {
				w = next
			} else if t.Context().Err() != nil {
				t.Errorf("%s can't claim: %v", o.name, err)
				return
			}
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		burst := 1 + r.IntN(8)
		first := len(o.attempts)
		for range burst {
			a := attempt{p: o.p, name: fmt.Sprintf("%s-%d", o.name, n), size: 1 + r.IntN(4)}
			n++
			i := len(o.attempts)
			mu.Lock()
			o.attempts = append(o.attempts, a)
			mu.Unlock()
			wg.Add(1)
			w.Append(int64(n), a.records(), func(offset int64, err error) {
				mu.Lock()
				defer mu.Unlock()
				o.attempts[i].offset, o.attempts[i].err = offset, err
				wg.Done()
			})
		}
		if r.IntN(5) == 0 {
			wg.Add(1)
			w.Barrier(func(int64, error) { wg.Done() })
		}
		wg.Wait()
		for _, a := range o.attempts[first:] {
			if a.err != nil {
				w.Close()
				w = nil
				break
			}
		}
	}
	if w != nil {
		w.Close()
	}
}

// TestFaultsLoseAndDoubleNothing: whatever happens on the way, each acknowledged operation is in the log exactly once,
// whole, at the offset that its owner was told, and in the order of the appends; one with an error is there at most once.
func TestFaultsLoseAndDoubleNothing(t *testing.T) {
	seed := *faultSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed: go test ./eventlog -run %s -fault-seed %d", t.Name(), seed)
	const parts, ops = 3, 400
	c := fakeCluster(t)
	cut := &cutter{key: int16(kmsg.Produce)}
	change := []func(*KafkaConfig){partitions(parts), deadline(time.Second), renewing(150 * time.Millisecond), options(kgo.Dialer(cut.dial))}
	k, rival := open(t, c.ListenAddrs(), change...), open(t, c.ListenAddrs(), change...)
	m := newMemory()
	follow(t, k, m)

	stop := make(chan struct{})
	var faults sync.WaitGroup
	faults.Go(func() { makeTrouble(t, c, cut, rand.New(rand.NewPCG(seed, 1)), parts, stop) })
	var owners []*owner
	var wg sync.WaitGroup
	for p := range int32(parts) {
		owners = append(owners, &owner{k: k, p: p, name: fmt.Sprintf("a%d", p)}, &owner{k: rival, p: p, name: fmt.Sprintf("b%d", p)})
	}
	for i, o := range owners {
		n := ops
		if o.k == rival {
			n = ops / 8 // steals the partition now and then
		}
		wg.Go(func() { o.run(t, rand.New(rand.NewPCG(seed, uint64(2+i))), n) })
	}
	wg.Wait()
	close(stop)
	faults.Wait()
	for p := range int32(parts) {
		reaches(t, k, m, p)
	}
	equal(t, "resets", m.why(), nil)
	outcomes := map[string]int{}
	for _, o := range owners {
		for _, a := range o.attempts {
			outcomes[kind(a.err)]++
		}
		m.mu.Lock()
		checkLog(t, m.entries[o.p], o.attempts)
		m.mu.Unlock()
	}
	t.Logf("outcomes: %v", outcomes)
	if outcomes["acknowledged"] == 0 {
		t.Error("nothing was acknowledged, so nothing was tested")
	}
}

func kind(err error) string {
	for _, k := range []error{ErrFenced, ErrOutcomeUnknown, ErrClosed} {
		if errors.Is(err, k) {
			return k.Error()
		}
	}
	if err == nil {
		return "acknowledged"
	}
	return err.Error()
}

// makeTrouble has the cluster misbehave until stop is closed.
func makeTrouble(t *testing.T, c *kfake.Cluster, cut *cutter, r *rand.Rand, parts int32, stop chan struct{}) {
	errs := []*kerr.Error{
		kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend, kerr.NotEnoughReplicas, kerr.NotLeaderForPartition,
		kerr.UnknownTopicOrPartition, kerr.KafkaStorageError, kerr.RequestTimedOut, kerr.OutOfOrderSequenceNumber,
	}
	var last *kfake.FaultHandle
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(r.IntN(40)) * time.Millisecond):
		}
		if last != nil {
			last.Remove() // what nothing has met by now would pile up until nothing gets through
		}
		p := r.Int32N(parts)
		switch r.IntN(4) {
		case 0:
			if err := c.MoveTopicPartition(testTopic, p, r.Int32N(3)); err != nil {
				t.Error(err)
			}
		case 1:
			last = c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: testTopic, Partitions: []int32{p}, Err: errs[r.IntN(len(errs))], Count: 1 + r.IntN(3)})
		case 2:
			last = c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: testTopic, Partitions: []int32{p}, Err: errs[r.IntN(6)], Count: 1})
		case 3:
			cut.cut.Store(int64(1 + r.IntN(2)))
		}
	}
}

// checkLog compares one owner's attempts with the log of its partition.
func checkLog(t *testing.T, log []Entry, attempts []attempt) {
	t.Helper()
	at := map[string][]int{} // where the first record of each operation is
	for i, e := range log {
		if string(e.Value[:min(2, len(e.Value))]) == "0/" {
			at[string(e.Key)] = append(at[string(e.Key)], i)
		}
	}
	last := int64(-1)
	for _, a := range attempts {
		places := at[a.name]
		if len(places) > 1 || len(places) == 0 && a.err == nil {
			t.Errorf("%s (%v) is %d times in the log", a.name, a.err, len(places))
			continue
		}
		if len(places) == 0 {
			continue
		}
		first := log[places[0]]
		if a.err == nil && first.Offset != a.offset || first.Offset <= last {
			t.Errorf("%s was told offset %d, is at %d, after %d", a.name, a.offset, first.Offset, last)
		}
		last = first.Offset
		got := log[places[0]:min(places[0]+a.size, len(log))]
		if !slices.EqualFunc(got, a.records(), func(e Entry, r Raw) bool {
			return string(e.Key) == string(r.Key) && string(e.Value) == string(r.Value) && e.ProducerEpoch == first.ProducerEpoch
		}) || got[len(got)-1].Offset != first.Offset+int64(a.size)-1 {
			t.Errorf("%s is not whole at offset %d", a.name, first.Offset)
		}
	}
}
