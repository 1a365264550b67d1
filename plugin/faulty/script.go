package faulty

import (
	"strconv"
	"strings"
)

// separator divides the name and the clauses of a group id.
const separator = ";"

// behaviour is what the n-th call (from 1) of an operation does.
func behaviour(operation, group string, n int) string {
	for _, clause := range strings.Split(group, separator)[1:] {
		how, ok := strings.CutPrefix(clause, operation+":")
		if !ok {
			continue
		}
		how, times, counted := strings.Cut(how, "*")
		if !counted {
			return how
		}
		count, err := strconv.Atoi(times)
		if err != nil || count < 1 {
			panic("faulty: bad count in clause " + clause)
		}
		if n <= count {
			return how
		}
		n -= count
	}
	return "ok"
}

// nameOf is a group's name: its id without the clauses.
func nameOf(group string) string {
	name, _, _ := strings.Cut(group, separator)
	return name
}

// frees are what a group's clauses free:NAME/OPERATION name.
func frees(group string) (held []string) {
	for _, clause := range strings.Split(group, separator)[1:] {
		if key, ok := strings.CutPrefix(clause, "free:"); ok {
			held = append(held, key)
		}
	}
	return held
}
