package plugin

import "context"

// operation is one of the plugin's methods.
type operation int

const (
	opSet operation = iota
	opGet
	opDelete
	opEpochs
	operations
)

func (o operation) String() string { return [...]string{"set", "get", "delete", "epochs"}[o] }

// ofEpoch says that a call of the operation names a topology epoch.
func (o operation) ofEpoch() bool { return o == opSet || o == opGet }

// slots bounds the calls under way, each operation for itself: a describe of all groups must not keep a member's push
// from being stored.
type slots [operations]chan struct{}

func newSlots(perOperation int) slots {
	var s slots
	for op := range s {
		s[op] = make(chan struct{}, perOperation)
	}
	return s
}

// try takes a slot, or says that none is free.
func (s *slots) try(op operation) bool {
	select {
	case s[op] <- struct{}{}:
		return true
	default:
		return false
	}
}

// wait takes a slot, or says that ctx ended first.
func (s *slots) wait(ctx context.Context, op operation) bool {
	select {
	case s[op] <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *slots) release(op operation) { <-s[op] }
