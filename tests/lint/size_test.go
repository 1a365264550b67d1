package lint

import (
	"os"
	"path/filepath"
	"testing"
)

// fileMax is in bytes. The largest files are captures and module sums of less than 150 KB; what is larger was built, and not written.
const fileMax = 512 << 10

// Whoever clones the repository fetches all that was ever in it: a binary that was added by mistake stays there for good.
func TestNoFileWasBuilt(t *testing.T) {
	err := walk(func(path string) error {
		info, err := os.Stat(filepath.Join(root, path))
		if err == nil && info.Size() > fileMax {
			t.Errorf("%s has %d bytes: a file that was built is not kept", path, info.Size())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
