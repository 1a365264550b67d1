package kafkatest

import (
	"os"
	"syscall"
)

// peakMiB is the resident memory that a process that has ended had at most.
func peakMiB(s *os.ProcessState) float64 {
	if usage, ok := s.SysUsage().(*syscall.Rusage); ok {
		return float64(usage.Maxrss) / 1024 // KiB on Linux
	}
	return 0
}
