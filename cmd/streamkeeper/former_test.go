package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestTheFormerMemberCountsOnlyWhereItIsDead: whoever may still be alive must not be thrown out of the group.
func TestTheFormerMemberCountsOnlyWhereItIsDead(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what start of the machine it is can be told on Linux alone")
	}
	dir := t.TempDir()
	at := func(dir string) formerMember {
		return formerMember{file: filepath.Join(dir, formerFile), lock: filepath.Join(dir, "LOCK"), log: slog.New(slog.DiscardHandler)}
	}
	here := at(dir)
	write(t, here.lock, "")
	if got := here.read("log", 1); got != "" {
		t.Errorf("before the first start: %q", got)
	}
	here.write("log", 1, "old")
	here.write("log", 1, "member-1")
	if got := here.read("log", 1); got != "member-1" {
		t.Errorf("after a kill: %q", got)
	}
	for what, got := range map[string]string{"another log": here.read("other", 1), "another node id": here.read("log", 2)} {
		if got != "" {
			t.Errorf("%s: %q", what, got)
		}
	}

	copied := t.TempDir()
	raw, err := os.ReadFile(here.file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, at(copied).file, string(raw))
	write(t, at(copied).lock, "")
	if got := at(copied).read("log", 1); got != "" {
		t.Errorf("a copy of the directory, whose original may be in use: %q", got)
	}

	boot, _, _ := strings.Cut(lockPlace(here.lock), " ")
	write(t, here.file, strings.Replace(string(raw), boot, "another-start", 1))
	if got := here.read("log", 1); got != "" {
		t.Errorf("the machine has started anew: %q", got)
	}
	write(t, here.file, "{")
	if got := here.read("log", 1); got != "" {
		t.Errorf("a damaged file: %q", got)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
