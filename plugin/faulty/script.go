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
