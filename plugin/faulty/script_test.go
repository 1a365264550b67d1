package faulty

import (
	"slices"
	"testing"

	"streamkeeper/plugin"
)

func TestBehaviour(t *testing.T) {
	for _, c := range []struct {
		operation, group string
		n                int
		want             string
	}{
		{"set", "g", 1, "ok"},
		{"set", "g;set:throw", 7, "throw"},
		{"get", "g;set:throw", 1, "ok"},
		{"set", "g;set:nil*2;get:null;set:hang*1", 2, "nil"},
		{"set", "g;set:nil*2;get:null;set:hang*1", 3, "hang"},
		{"set", "g;set:nil*2;get:null;set:hang*1", 4, "ok"},
		{"set", "g;set:nil*1;set:throw", 9, "throw"},
	} {
		if got := behaviour(c.operation, c.group, c.n); got != c.want {
			t.Errorf("call %d of %s of %s: %s, want %s", c.n, c.operation, c.group, got, c.want)
		}
	}
}

func TestHeldUntilFreed(t *testing.T) {
	var calls []string
	p := New(Config{Called: func(line string) { calls = append(calls, line) }})
	held := p.Set(t.Context(), "a;set:held", 3, &plugin.Description{})
	if _, err := held.Result(); err != plugin.ErrPending {
		t.Fatalf("the future is completed: %v", err)
	}
	if _, err := p.Set(t.Context(), "b;free:a/set", 0, &plugin.Description{}).Result(); err != nil {
		t.Fatal(err)
	}
	if _, err := held.Result(); err != nil {
		t.Errorf("the future is not freed: %v", err)
	}
	if d, err := p.Get(t.Context(), "a;set:held", 3).Result(); d == nil || err != nil {
		t.Errorf("nothing is stored: %v", err)
	}
	if want := []string{"plugin-call set 3 held a;set:held", "plugin-call set 0 ok b;free:a/set", "plugin-call get 3 ok a;set:held"}; !slices.Equal(calls, want) {
		t.Errorf("calls %q, want %q", calls, want)
	}
}
