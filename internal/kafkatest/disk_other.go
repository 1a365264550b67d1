//go:build !linux

package kafkatest

import "testing"

// SmallDisk is a file system of its own; there is none here.
func SmallDisk(testing.TB, int) (dir string, ok bool) { return "", false }

// FillDisk fills what SmallDisk returned.
func FillDisk(tb testing.TB, dir, _ string) (file string) {
	tb.Helper()
	tb.Fatalf("there is no small disk at %s", dir)
	return ""
}

// ReadOnly is for Linux.
func ReadOnly(testing.TB, string) (undo func(), ok bool) { return nil, false }
