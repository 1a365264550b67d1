// Package wall is the process's one door to the time of day: what is written into records, and what is compared with it. Durations,
// timers, deadlines and leases are measured by clocks that nobody can set; docs/design.md says which is used for what.
//
// File map:
//
//	now.go      the time of day
//	skewed.go   the same with an error, for tests: only in binaries that are built with the tag skewclock
package wall
