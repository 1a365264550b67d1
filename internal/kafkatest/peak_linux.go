package kafkatest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// peakMiB is the resident memory that a running process has had at most; 0 where that can't be told.
func peakMiB(pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			return float64(kib) / 1024
		}
	}
	return 0
}
