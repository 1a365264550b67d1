package kafkatest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func splitAddrs(bootstrap string) []string { return strings.Split(bootstrap, ",") }

// loadKeys is the number of different keys: enough to reach every partition of a topic.
const loadKeys = 97

// loadFlushTimeout is how long unacknowledged records may take after the load was halted: longer than any restart
// of a broker or gateway in a test.
const loadFlushTimeout = 90 * time.Second

// Load writes records with the numbers 0, 1, 2, … as values to a topic, or with words that repeat. What it counts as sent is acknowledged.
type Load struct {
	tb    testing.TB
	cl    *kgo.Client
	topic string
	words int // 0 for numbers

	mu   sync.Mutex
	next int
	errs []error
	stop chan struct{} // closed to end the background writer
	done chan struct{}
}

// NewLoad makes a writer; it writes nothing yet.
func NewLoad(tb testing.TB, bootstrap, topic string) *Load {
	tb.Helper()
	cl, err := kgo.NewClient(
		kgo.SeedBrokers(splitAddrs(bootstrap)...), kgo.ClientID("test-load"), kgo.DefaultProduceTopic(topic),
		kgo.ProducerLinger(0), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.MetadataMinAge(100*time.Millisecond), // a test that restarts brokers shouldn't wait for the client
		kgo.UnknownTopicRetries(100),             // a topic that was just made is not known everywhere at once
	)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(cl.Close)
	return &Load{tb: tb, cl: cl, topic: topic}
}

// NewWords makes a writer whose values are one word after the other of so many, to be counted.
func NewWords(tb testing.TB, bootstrap, topic string, words int) *Load {
	tb.Helper()
	l := NewLoad(tb, bootstrap, topic)
	l.words = words
	return l
}

func (l *Load) value(n int) string {
	if l.words == 0 {
		return strconv.Itoa(n)
	}
	return "word" + strconv.Itoa(n%l.words)
}

// Counts says how often each value was handed over so far.
func (l *Load) Counts() map[string]uint64 {
	counts := make(map[string]uint64)
	for n := range l.Sent() {
		counts[l.value(n)]++
	}
	return counts
}

func (l *Load) produce() {
	l.mu.Lock()
	n := l.next
	l.next++
	l.mu.Unlock()
	r := &kgo.Record{Key: []byte("k" + strconv.Itoa(n%loadKeys)), Value: []byte(l.value(n))}
	l.cl.Produce(context.Background(), r, func(r *kgo.Record, err error) {
		if err != nil {
			l.mu.Lock()
			l.errs = append(l.errs, fmt.Errorf("record %s: %w", r.Value, err))
			l.mu.Unlock()
		}
	})
}

// flush waits until everything is acknowledged, and fails the test if something was not.
func (l *Load) flush() {
	l.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), loadFlushTimeout)
	defer cancel()
	err := l.cl.Flush(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err = errors.Join(append([]error{err}, l.errs...)...); err != nil {
		l.tb.Fatalf("write to %s: %v", l.topic, err)
	}
}

// Send writes n more records and waits for their acknowledgements.
func (l *Load) Send(n int) {
	l.tb.Helper()
	for range n {
		l.produce()
	}
	l.flush()
}

// Run writes in the background until Halt.
func (l *Load) Run(perSecond int) {
	l.tb.Helper()
	if l.stop != nil {
		l.tb.Fatal("the load runs already")
	}
	l.stop, l.done = make(chan struct{}), make(chan struct{})
	go func(stop, done chan struct{}) {
		defer close(done)
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				l.produce()
			}
		}
	}(l.stop, l.done)
}

// Halt ends Run, waits until everything is acknowledged, and returns how many records there are in all.
func (l *Load) Halt() int {
	l.tb.Helper()
	if l.stop != nil {
		close(l.stop)
		<-l.done
		l.stop, l.done = nil, nil
	}
	l.flush()
	return l.Sent()
}

// Sent is the number of records handed over so far, acknowledged or not.
func (l *Load) Sent() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// Seen is one record of an application's output topic.
type Seen struct {
	Tag
	Partition int32
	Offset    int64
	Key       string
	Value     []byte
	Arrived   time.Time // here
}

// Sink reads an output topic from its start, in the background, until the test ends.
type Sink struct {
	tb    testing.TB
	topic string

	mu  sync.Mutex
	all []Seen
	err error
	// Of the first counted records of all: how often each number came.
	counted int
	times   []int
}

// Watch starts reading.
func Watch(tb testing.TB, bootstrap, topic string) *Sink {
	tb.Helper()
	cl, err := kgo.NewClient(
		kgo.SeedBrokers(splitAddrs(bootstrap)...), kgo.ClientID("test-sink"), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(100*time.Millisecond), kgo.FetchMaxWait(100*time.Millisecond),
	)
	if err != nil {
		tb.Fatal(err)
	}
	s := &Sink{tb: tb, topic: topic}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			// Errors of a fetch are what restarts look like; the client goes on by itself.
			s.add(cl.PollFetches(ctx).Records())
		}
	}()
	tb.Cleanup(func() { cancel(); <-done; cl.Close() })
	return s
}

func (s *Sink) add(records []*kgo.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range records {
		tag, err := readTag(r.Headers)
		if err != nil {
			s.err = fmt.Errorf("%s-%d@%d: %w", s.topic, r.Partition, r.Offset, err)
		}
		s.all = append(s.all, Seen{Tag: tag, Partition: r.Partition, Offset: r.Offset, Key: string(r.Key), Value: r.Value, Arrived: time.Now()})
	}
}

// Mark is a place in what was seen so far, for WritersSince.
func (s *Sink) Mark() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// WritersSince counts the records after the mark by the instance that wrote them.
func (s *Sink) WritersSince(mark int) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	by := make(map[string]int)
	for _, r := range s.all[mark:] {
		by[r.By]++
	}
	return by
}

// Seen is everything so far, in the order of its arrival here.
func (s *Sink) Seen() []Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// Longest is the longest time between two records that came one after the other since the mark.
func (s *Sink) Longest(mark int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var longest time.Duration
	for i := mark + 1; i < len(s.all); i++ {
		longest = max(longest, s.all[i].Arrived.Sub(s.all[i-1].Arrived))
	}
	return longest
}

// LongestOf is the longest time, that a partition was without a new record until one came after the mark.
func (s *Sink) LongestOf(mark int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var longest time.Duration
	last := map[int32]time.Time{}
	for _, r := range s.all[:mark] {
		last[r.Partition] = r.Arrived
	}
	for _, r := range s.all[mark:] {
		if before, ok := last[r.Partition]; ok {
			longest = max(longest, r.Arrived.Sub(before))
		}
		last[r.Partition] = r.Arrived
	}
	return longest
}

// lostShown bounds the numbers printed when records are missing.
const lostShown = 20

// WaitAll waits until each of the numbers 0 … n-1 has come out at least once, and returns how many records came a
// second time (which at-least-once allows). It fails the test when one is missing after the time-out, or when
// something came out that never went in.
func (s *Sink) WaitAll(n int, timeout time.Duration) (duplicates int) {
	s.tb.Helper()
	deadline := time.Now().Add(timeout)
	for {
		missing, duplicates, err := s.compare(n)
		if err != nil {
			s.tb.Fatal(err)
		}
		if len(missing) == 0 {
			return duplicates
		}
		if time.Now().After(deadline) {
			s.tb.Fatalf("%d of %d records have not come out of %s within %s: %v … (written by %v)",
				len(missing), n, s.topic, timeout, missing[:min(len(missing), lostShown)], s.WritersSince(0))
		}
		time.Sleep(pollInterval) // see pollInterval
	}
}

// WaitCounts waits until the last value of each key is its count, as an application writes them. It fails the test when that is not so
// after the time-out, and at once when one is higher: the counts must be final, and records counted twice are a failure.
func (s *Sink) WaitCounts(want map[string]uint64, timeout time.Duration) {
	s.tb.Helper()
	deadline := time.Now().Add(timeout)
	for {
		wrong, err := s.miscounted(want)
		if err != nil {
			s.tb.Fatal(err)
		}
		if len(wrong) == 0 {
			return
		}
		if time.Now().After(deadline) {
			s.tb.Fatalf("%d of %d counts in %s are wrong after %s: %v … (written by %v)",
				len(wrong), len(want), s.topic, timeout, wrong[:min(len(wrong), lostShown)], s.WritersSince(0))
		}
		time.Sleep(pollInterval) // see pollInterval
	}
}

func (s *Sink) miscounted(want map[string]uint64) (wrong []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	got := make(map[string]uint64)
	for _, r := range s.all { // a key has one partition, whose records come in their order
		if len(r.Value) != 8 {
			return nil, fmt.Errorf("%s-%d@%d has a value that is no count: %q", s.topic, r.Partition, r.Offset, r.Value)
		}
		got[r.Key] = binary.BigEndian.Uint64(r.Value)
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if got[key] > want[key] {
			return nil, fmt.Errorf("%s was counted %d times in %s, and came %d times", key, got[key], s.topic, want[key])
		}
		if got[key] != want[key] {
			wrong = append(wrong, fmt.Sprintf("%s %d, want %d", key, got[key], want[key]))
		}
		delete(got, key)
	}
	for key := range got {
		return nil, fmt.Errorf("%s was counted in %s and never came", key, s.topic)
	}
	return wrong, nil
}

// Missing are the numbers below n that have not come out yet; there may be more that have. It fails the test where something is no number.
func (s *Sink) Missing(n int) (missing []int) {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.count(); err != nil {
		s.tb.Fatal(err)
	}
	for seq := range n {
		if seq >= len(s.times) || s.times[seq] == 0 {
			missing = append(missing, seq)
		}
	}
	return missing
}

// numberMax bounds the numbers of a Load: an hour of a thousand a second.
const numberMax = 3_600_000

// count takes the records that have come since the last call.
func (s *Sink) count() error {
	if s.err != nil {
		return s.err
	}
	for ; s.counted < len(s.all); s.counted++ {
		r := s.all[s.counted]
		seq, err := strconv.Atoi(string(r.Value))
		if err != nil || seq < 0 || seq > numberMax {
			return fmt.Errorf("%s-%d@%d has a value that was not written: %q", s.topic, r.Partition, r.Offset, r.Value)
		}
		for len(s.times) <= seq {
			s.times = append(s.times, 0)
		}
		s.times[seq]++
	}
	return nil
}

func (s *Sink) compare(n int) (missing []int, duplicates int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.count(); err != nil {
		return nil, 0, err
	}
	if len(s.times) > n {
		return nil, 0, fmt.Errorf("%d came out of %s, only 0 to %d were written", len(s.times)-1, s.topic, n-1)
	}
	for seq := range n {
		if seq >= len(s.times) || s.times[seq] == 0 {
			missing = append(missing, seq)
		} else {
			duplicates += s.times[seq] - 1
		}
	}
	return missing, duplicates, nil
}
