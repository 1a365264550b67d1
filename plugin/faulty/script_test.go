package faulty

import "testing"

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
