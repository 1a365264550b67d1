//go:build !skewclock

package wall

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestTheTimeOfDayIsTheMachines: in the binary that is shipped nothing moves it, whatever the environment says.
func TestTheTimeOfDayIsTheMachines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "skew")
	if err := os.WriteFile(file, []byte("600"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("STREAMKEEPER_SKEW_FILE", file)
	before, now, after := time.Now(), Now(), time.Now()
	if now.Before(before) || now.After(after) || now.Round(0).Sub(before.Round(0)).Abs() > time.Minute {
		t.Errorf("it was %v, then %v, then %v", before, now, after)
	}
}
