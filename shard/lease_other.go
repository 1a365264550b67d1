//go:build !linux

package shard

// BootClock is, on systems other than Linux, the larger advance of the monotonic and the wall clock: it counts the time
// the machine was suspended unless the wall clock is set back meanwhile.
func BootClock() Clock { return newSlewClock() }
