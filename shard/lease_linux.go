package shard

import (
	"golang.org/x/sys/unix"
)

// BootClock is CLOCK_BOOTTIME: it never goes back, nobody can set it, and it counts the time the machine was suspended.
// Where the kernel refuses it the larger advance of the monotonic and the wall clock takes its place.
func BootClock() Clock {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return newSlewClock()
	}
	return bootClock{}
}

type bootClock struct{}

// Now implements Clock. An error is impossible after BootClock's own call; it would be read as the end of all leases.
func (bootClock) Now() Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return Instant(1<<63 - 1)
	}
	return Instant(ts.Nano())
}
