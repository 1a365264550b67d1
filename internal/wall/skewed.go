//go:build skewclock

package wall

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"
)

// OffsetFile is the environment variable that names a file with the number of seconds by which the time of day is wrong. It may change
// while the process runs: the clock jumps.
const OffsetFile = "STREAMKEEPER_SKEW_FILE"

// rereadAfter bounds how often the file is read.
const rereadAfter = 20 * time.Millisecond

var skew struct {
	mu      sync.Mutex
	read    time.Time
	seconds int64
}

// Now is the time of day of a machine whose clock was set wrong: the monotonic reading stays what it is.
func Now() time.Time {
	t := time.Now()
	skew.mu.Lock()
	if t.Sub(skew.read) > rereadAfter {
		skew.read = t
		if b, err := os.ReadFile(os.Getenv(OffsetFile)); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil {
				skew.seconds = n
			}
		}
	}
	seconds := skew.seconds
	skew.mu.Unlock()
	// The first word of a time.Time with a monotonic reading: a flag, 33 bits of seconds since 1885, 30 bits of nanoseconds. There is
	// no other way to move the one reading without the other.
	*(*uint64)(unsafe.Pointer(&t)) += uint64(seconds) << 30
	return t
}
