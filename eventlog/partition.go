package eventlog

import "math"

// Partition is the partition of the log that holds the records of a group, of n > 0: the absolute value of Java's
// String.hashCode modulo n, as __consumer_offsets places its groups (Kafka: GroupCoordinatorService.partitionFor and
// Utils.abs, which makes 0 of the one number that has no absolute value).
func Partition(group string, n int32) int32 {
	h := javaHash(group)
	if h == math.MinInt32 {
		return 0
	}
	if h < 0 {
		h = -h
	}
	return h % n
}

// javaHash is Java's String.hashCode: over UTF-16 code units, wrapping at 32 bits.
func javaHash(s string) int32 {
	const surrogateMin, surrogateHigh, surrogateLow = 0x10000, 0xd800, 0xdc00
	var h int32
	for _, r := range s {
		if r >= surrogateMin {
			r -= surrogateMin
			h = 31*h + (surrogateHigh + r>>10)
			r = surrogateLow + r&0x3ff
		}
		h = 31*h + r
	}
	return h
}
