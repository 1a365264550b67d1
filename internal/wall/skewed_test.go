//go:build skewclock

package wall

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestOnlyTheTimeOfDayIsWrong: a clock that was set leaves durations alone.
func TestOnlyTheTimeOfDayIsWrong(t *testing.T) {
	file := filepath.Join(t.TempDir(), "skew")
	t.Setenv(OffsetFile, file)
	for _, skew := range []string{"600", "-600", "0"} {
		if err := os.WriteFile(file, []byte(skew), 0o644); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * rereadAfter) // what is tested is that the file is read again
		want, err := time.ParseDuration(skew + "s")
		if err != nil {
			t.Fatal(err)
		}
		before, now := time.Now(), Now()
		if d := now.Sub(before); d < 0 || d > time.Minute {
			t.Errorf("skew %s: %s passed by the monotonic clock", skew, d)
		}
		if d := now.Round(0).Sub(before.Round(0)) - want; d.Abs() > time.Minute {
			t.Errorf("skew %s: the time of day is off by %s more", skew, d)
		}
	}
}
