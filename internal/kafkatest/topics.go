package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// adminTimeout bounds one call of the admin client, retries included.
const adminTimeout = 30 * time.Second

// Admin is a franz-go admin client, closed when the test ends.
func Admin(tb testing.TB, bootstrap string) *kadm.Client {
	tb.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(splitAddrs(bootstrap)...), kgo.ClientID("test-admin"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(cl.Close)
	return kadm.NewClient(cl)
}

// CreateTopics makes topics with that many partitions and as many replicas as the cluster's default is, and waits until brokers know
// them: on a busy machine that can take seconds, more than a client's patience in a test.
func CreateTopics(tb testing.TB, bootstrap string, partitions int32, names ...string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	adm := Admin(tb, bootstrap)
	resp, err := adm.CreateTopics(ctx, partitions, -1, nil, names...)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		tb.Fatalf("create topics %v at %s: %v", names, bootstrap, err)
	}
	Eventually(tb, adminTimeout, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
		defer cancel()
		topics, err := adm.ListTopics(ctx, names...)
		if err == nil {
			err = topics.Error()
		}
		for name, t := range topics {
			for _, p := range t.Partitions {
				if err == nil {
					err = p.Err
				}
			}
			if err == nil && len(t.Partitions) != int(partitions) {
				err = fmt.Errorf("topic %s has %d partitions", name, len(t.Partitions))
			}
		}
		return err
	})
}

// Committed are the offsets a group has committed for a topic, per partition, as the coordinator that bootstrap
// leads to answers OffsetFetch. Partitions without one are not in the map; a group that does not exist has none (Kafka
// says so without an error, other clusters with one). It asks again where a broker or replica that the client chose is down.
func Committed(tb testing.TB, bootstrap, group, topic string) (offsets map[int32]int64) {
	tb.Helper()
	adm := Admin(tb, bootstrap)
	Eventually(tb, adminTimeout, func() (err error) {
		offsets, err = committed(adm, group, topic)
		return err
	})
	return offsets
}

func committed(adm *kadm.Client, group, topic string) (map[int32]int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	resp, err := adm.FetchOffsets(ctx, group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return map[int32]int64{}, nil
	}
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("fetch the offsets of group %s: %w", group, err)
	}
	offsets := make(map[int32]int64)
	for p, o := range resp[topic] {
		if o.At >= 0 {
			offsets[p] = o.At
		}
	}
	return offsets, nil
}

// EndOffsets are the log end offsets of a topic per partition.
func EndOffsets(tb testing.TB, bootstrap, topic string) map[int32]int64 {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	resp, err := Admin(tb, bootstrap).ListEndOffsets(ctx, topic)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		tb.Fatalf("list the end offsets of %s at %s: %v", topic, bootstrap, err)
	}
	offsets := make(map[int32]int64)
	for p, o := range resp[topic] {
		offsets[p] = o.Offset
	}
	return offsets
}

// WaitCommitted waits until the group's committed offsets, asked for at bootstrap, are the ends of the topic.
func WaitCommitted(tb testing.TB, bootstrap, group, topic string, timeout time.Duration) {
	tb.Helper()
	want := EndOffsets(tb, bootstrap, topic)
	adm := Admin(tb, bootstrap)
	var got map[int32]int64
	var err error
	Eventually(tb, timeout, func() error {
		got, err = committed(adm, group, topic)
		if err == nil && !maps.Equal(got, want) {
			err = fmt.Errorf("group %s has committed %v of %s, which ends at %v", group, got, topic, want)
		}
		return err
	})
}

// Eventually calls check until it returns nil, and fails the test with its last error after the time-out.
func Eventually(tb testing.TB, timeout time.Duration, check func() error) {
	tb.Helper()
	deadline := time.Now().Add(timeout)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("not within %s: %v", timeout, err)
		}
		time.Sleep(pollInterval) // see pollInterval
	}
}
