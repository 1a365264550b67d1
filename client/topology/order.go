package topology

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// CompareNames orders names as Kafka's client orders those of nodes, as Java does strings: by UTF-16 code units. The result is that of cmp.Compare.
func CompareNames(a, b string) int { return compareJava(a, b) }

// compareJava orders strings as Java does, by UTF-16 code units. That differs from Go's order by bytes in one place:
// what lies beyond the basic plane (emoji, say) is written with surrogates, which come before U+E000 to U+FFFF.
func compareJava(a, b string) int {
	if ascii(a) && ascii(b) {
		return strings.Compare(a, b)
	}
	for a != "" && b != "" {
		r, n := utf8.DecodeRuneInString(a)
		q, m := utf8.DecodeRuneInString(b)
		if r != q {
			return cmp.Compare(javaRank(r), javaRank(q))
		}
		a, b = a[n:], b[m:]
	}
	return cmp.Compare(len(a), len(b))
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func javaRank(r rune) rune {
	if r >= 0xe000 && r <= 0xffff {
		return r + utf8.MaxRune
	}
	return r
}

// sortedSet sorts a list in place as Java sorts strings, and drops what is there twice. The result of an empty list is nil.
func sortedSet(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	slices.SortFunc(list, compareJava)
	return slices.Compact(list)
}

// sortedCopy is sortedSet of a copy.
func sortedCopy(list []string) []string { return sortedSet(slices.Clone(list)) }

// distinct is the list without what is there twice, in the order of the first occurrences; nil if it is empty.
func distinct(list []string) []string {
	switch len(list) {
	case 0:
		return nil
	case 1:
		return []string{list[0]}
	}
	seen := make(map[string]struct{}, len(list))
	out := make([]string, 0, len(list))
	for _, s := range list {
		if _, ok := seen[s]; !ok {
			seen[s] = struct{}{}
			out = append(out, s)
		}
	}
	return out
}

// CompareIDs orders the ids of subtopologies as numbers; what is not a number comes after the numbers.
func CompareIDs(a, b string) int { return compareIDs(a, b) }

// compareIDs orders the ids of subtopologies as numbers; what is not a number comes after the numbers.
func compareIDs(a, b string) int {
	x, errX := strconv.ParseInt(a, 10, 64)
	y, errY := strconv.ParseInt(b, 10, 64)
	switch {
	case errX == nil && errY == nil:
		return cmp.Or(cmp.Compare(x, y), compareJava(a, b))
	case errX == nil:
		return -1
	case errY == nil:
		return 1
	}
	return compareJava(a, b)
}
