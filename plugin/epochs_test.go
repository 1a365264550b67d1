package plugin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// teller is a puppet that tells its epochs.
type teller struct {
	puppet
	epochs func() *Future[[]int32]
}

func (t *teller) Epochs(context.Context, string) *Future[[]int32] { return t.epochs() }

func (s *stage) epochs(ctx context.Context, group string) ([]int32, Outcome) {
	type result struct {
		list []int32
		o    Outcome
	}
	out := make(chan result, 2)
	s.Epochs(ctx, group, func(list []int32, o Outcome) { out <- result{list, o} })
	r := <-out
	return r.list, r.o
}

func TestEpochsOfAPluginThatTells(t *testing.T) {
	list := []int32{1, 4}
	p := &teller{epochs: func() *Future[[]int32] { return Completed(list) }}
	s := newStage(t, p)
	got, o := s.epochs(t.Context(), "g")
	list[0] = 9 // the caller has a copy
	if !slices.Equal(got, []int32{1, 4}) || o.Kind != Listed || !o.OK() {
		t.Errorf("epochs %v, outcome %v", got, o)
	}
	p.epochs = func() *Future[[]int32] { return Failed[[]int32](errors.New("backend down")) }
	if got, o := s.epochs(t.Context(), "g"); got != nil || o.Kind != TransientFailure {
		t.Errorf("epochs %v, outcome %v", got, o)
	}
	want := []string{"plugin epochs group=g operation=epochs outcome=listed plugin=puppet ",
		"plugin epochs error.message=backend down group=g operation=epochs outcome=transient permanent=false plugin=puppet ERROR "}
	if got := s.ended(); len(got) != len(want) || !strings.HasPrefix(got[0], want[0]) || !strings.HasPrefix(got[1], want[1]) {
		t.Errorf("spans %q, want %q and how long each took", got, want)
	}
	if s.Stats().GetSuccess+s.Stats().GetError != 0 {
		t.Errorf("Kafka's counters count it: %+v", s.Stats())
	}
}

func TestEpochsOfAPluginThatDoesNotTell(t *testing.T) {
	s := newStage(t, &puppet{})
	if got, o := s.epochs(t.Context(), "g"); got != nil || o.OK() || !errors.Is(o.Err, ErrNoEpochs) {
		t.Errorf("epochs %v, outcome %v", got, o)
	}
}
