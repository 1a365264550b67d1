package eventlog

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"streamkeeper/internal/kafkatest"
)

func TestSpent(t *testing.T) {
	owner := func(producer int64, epoch int16, former ...int64) *Owner {
		return &Owner{Ownership: Ownership{ProducerID: producer, ProducerEpoch: epoch}, Former: former}
	}
	for _, test := range []struct {
		name string
		prev *Owner
		want bool
	}{
		{"nobody owned it", nil, false},
		{"the last owner's", owner(1, 5), false},
		{"the last owner's, fenced by hand", owner(1, formerEpoch), true},
		{"another is fenced by hand", owner(2, formerEpoch), false},
		{"another", owner(2, 5, 3, 4), false},
		{"one that was replaced", owner(2, 5, 1, 3), true},
	} {
		if err := spent(Claim{ProducerID: 1, ProducerEpoch: 6}, test.prev); errors.Is(err, errSpent) != test.want {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestTransactionalIDs(t *testing.T) {
	for want, got := range map[string]string{"log-3": TransactionalID("log", 3, 0), "log-3.1": TransactionalID("log", 3, 1), "log-3-1": TransactionalID("log-3", 1, 0)} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// ownerOf is the owner of partition 0 as a reader of its whole log sees it.
func ownerOf(t testing.TB, k *Kafka) *Owner {
	t.Helper()
	end, err := k.End(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	var f Fence
	var owner *Owner
	if err := k.scan(t.Context(), 0, 0, end, func(e Entry) error {
		key, err := DecodeKey(e.Key)
		if err != nil || key.Type != TypeOwnership {
			f.Void(e)
			return nil
		}
		v, err := DecodeValue(TypeOwnership, e.Value)
		if err != nil {
			return err
		}
		if o := v.(*Ownership); f.Observe(e, o) {
			generation, _ := f.Generation()
			owner = &Owner{Ownership: *o, Offset: e.Offset, Generation: generation}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if owner == nil {
		t.Fatal("nobody owns the partition")
	}
	owner.Former = f.Former()
	return owner
}

// serves says that w's claim is the last that counts, its batches are taken, and it can be renewed.
func serves(t testing.TB, k *Kafka, w Writer) {
	t.Helper()
	mustPut(t, w, kv("a", "1"))
	first := w.Claim()
	if o := ownerOf(t, k); o.Generation != first.Generation || o.Number != first.Number {
		t.Fatalf("readers go by %+v, the claim is %+v", o, first)
	}
	w.Renew()
	eventually(t, func() error {
		if w.Claim().ProducerEpoch == first.ProducerEpoch {
			return errors.New("not renewed")
		}
		return nil
	})
	mustPut(t, w, kv("a", "2"))
	if o, c := ownerOf(t, k), w.Claim(); o.Generation != c.Generation || c.ProducerID != first.ProducerID || c.Number != first.Number {
		t.Fatalf("renewed: readers go by %+v, the claim is %+v, was %+v", o, c, first)
	}
}

// lied is what another coordinator gave, which was replaced and did not know it.
func lied(c Claim) Claim {
	return Claim{Partition: c.Partition, ProducerID: c.ProducerID + 1000, ProducerEpoch: 3}
}

// claimAgain claims as a shard does, again and again.
func claimAgain(t testing.TB, k *Kafka, prev func() *Owner, tries int) Writer {
	t.Helper()
	var err error
	for range tries {
		var w Writer
		if w, err = k.ClaimAfter(t.Context(), 0, Ownership{NodeID: 1, Instance: "b"}, prev(), time.Second); err == nil {
			return w
		}
		t.Log(err)
	}
	t.Fatalf("nobody can claim the partition: %v", err)
	return nil
}

func unforgetful(t *testing.T) []string {
	return strings.Split(kafkatest.Shared(t, kafkatest.Options{Version: "4.4.0"}).Bootstrap(), ",")
}

// TestKafkaAnIDThatIsStillGivenOutIsFencedByHand: a claimer was given a producer id by a transaction coordinator that had been replaced and did not know it
// (transaction.state.log.min.isr=1), fenced by hand the id that the true coordinator goes on giving, and died.
func TestKafkaAnIDThatIsStillGivenOutIsFencedByHand(t *testing.T) {
	seeds := unforgetful(t)
	for name, stale := range map[string]bool{"read": false, "not-read": true} {
		t.Run(name, func(t *testing.T) {
			k := open(t, seeds, topic("burnt-"+name), partitions(1))
			w := claim(t, k, 0) // the owner, by the true coordinator
			mustPut(t, w, kv("a", "1"))
			owner := ownerOf(t, k)
			if fresh, err := k.fenceFormer(t.Context(), lied(w.Claim()), Ownership{NodeID: 9, Instance: "z"}, owner); err != nil || fresh {
				t.Fatal(fresh, err)
			}
			prev := func() *Owner { return ownerOf(t, k) }
			if stale {
				prev = func() *Owner { return owner }
			}
			next := claimAgain(t, k, prev, 1)
			if c := next.Claim(); c.Number != 1 || c.FreshProducer {
				t.Errorf("claimed: %+v", c)
			}
			if _, err := put(t, w, kv("a", "late")); !errors.Is(err, ErrFenced) {
				t.Errorf("the former owner gets %v", err)
			}
			serves(t, k, next)
			// The next claimer begins with the transactional id of the last one, whose epochs fence.
			after := claimAgain(t, k, func() *Owner { return ownerOf(t, k) }, 1)
			if c, was := after.Claim(), next.Claim(); c.ProducerID != was.ProducerID || c.Number != 1 || c.ProducerEpoch <= was.ProducerEpoch {
				t.Errorf("claimed: %+v after %+v", c, was)
			}
			serves(t, k, after)
		})
	}
}

// TestKafkaAProducerIDComesBack: the coordinator gave an id, another, lost that, and gives the first again, for ever. No reader counts a claim by it.
func TestKafkaAProducerIDComesBack(t *testing.T) {
	seeds := unforgetful(t)
	for name, known := range map[string]bool{"known": true, "unknown": false} {
		t.Run(name, func(t *testing.T) {
			k := open(t, seeds, topic("back-"+name), partitions(1))
			first := claim(t, k, 0)
			other := *ownerOf(t, k)
			other.Number = 1
			second := claimAgain(t, k, func() *Owner { return &other }, 1)
			if second.Claim().ProducerID == first.Claim().ProducerID {
				t.Fatal("the same producer id")
			}
			mustPut(t, second, kv("a", "1"))
			owner := *ownerOf(t, k)
			owner.Number = 0 // "the same transactional id", which gives the first producer id again
			if !known {      // compaction took the first claim, and its fencing
				owner.Former = nil
			}
			third := claimAgain(t, k, func() *Owner { return &owner }, 2)
			if id := third.Claim().ProducerID; id == first.Claim().ProducerID {
				t.Errorf("claimed by the first id again: %+v", third.Claim())
			}
			serves(t, k, third)
			if _, err := put(t, second, kv("a", "late")); !errors.Is(err, ErrFenced) {
				t.Errorf("the former owner gets %v", err)
			}
		})
	}
}

// TestWhoCameTooLateTakesNoOtherID: its claim was refused because somebody else claimed, who stays the owner.
func TestWhoCameTooLateTakesNoOtherID(t *testing.T) {
	c := fakeCluster(t)
	k, other := open(t, c.ListenAddrs(), partitions(1)), open(t, c.ListenAddrs())
	mustPut(t, claim(t, k, 0), kv("a", "1"))
	owner := ownerOf(t, k)
	for range 3 {
		late, err := k.initProducer(t.Context(), Claim{ProducerID: -1, ProducerEpoch: -1})
		if err != nil {
			t.Fatal(err)
		}
		w, err := other.ClaimAfter(t.Context(), 0, Ownership{NodeID: 2, Instance: "c"}, owner, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.claimAs(t.Context(), late, Ownership{NodeID: 1, Instance: "b"}, owner); !errors.Is(err, ErrFenced) || errors.Is(err, errSpent) {
			t.Fatal(err)
		}
		serves(t, other, w)
	}
}

// TestARefusalThatTheLogDoesNotExplain: the first time it may be a claim that the leader does not show yet.
func TestARefusalThatTheLogDoesNotExplain(t *testing.T) {
	c := fakeCluster(t)
	k := open(t, c.ListenAddrs(), partitions(1))
	mustPut(t, claim(t, k, 0), kv("a", "1"))
	owner := ownerOf(t, k)
	refused := func(epoch int16) error {
		c := Claim{ProducerID: owner.ProducerID, ProducerEpoch: epoch}
		return k.whyRefused(t.Context(), c, owner, errors.Join(ErrFenced, kerr.InvalidProducerEpoch))
	}
	if err := refused(3); errors.Is(err, errSpent) {
		t.Errorf("the first time: %v", err)
	}
	if err := refused(3); errors.Is(err, errSpent) {
		t.Errorf("the same claim: %v", err)
	}
	if err := refused(4); !errors.Is(err, errSpent) || !errors.Is(err, ErrFenced) {
		t.Errorf("the second time: %v", err)
	}
}
