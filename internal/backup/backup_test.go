package backup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type row struct {
	topic     int
	partition int32
	key       string
	value     string
}

func written(t *testing.T, rows []row) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "b")
	w, err := Create(path, Header{Version: "test", Taken: time.Unix(1, 0).UTC(), Topics: []Topic{{Name: "log", Partitions: 3}, {Name: "annex", Partitions: 3}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if err := w.Add(r.topic, r.partition, []byte(r.key), []byte(r.value)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error("the file has its name before it is whole")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	return path
}

func rows() (out []row) {
	for i := range 50 {
		out = append(out, row{i % 2, int32(i % 3), fmt.Sprint("key", i), strings.Repeat("v", i*2000)})
	}
	return append(out, row{1, 2, "", ""})
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	want := rows()
	path := written(t, want)
	var got []row
	h, err := Records(path, func(topic int, p int32, key, value []byte) error {
		got = append(got, row{topic, p, string(key), string(value)})
		return nil
	})
	if err != nil || h.Topics[1].Name != "annex" {
		t.Fatalf("%+v %v", h, err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%d records read, %d written", len(got), len(want))
	}
	if _, err := Create(path, h); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("a second backup of the name: %v", err)
	}
}

// Wherever a file is cut off, and whichever byte of it is another one, is found.
func TestDamageIsFound(t *testing.T) {
	path := written(t, rows()[:4])
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := func(what string, b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Check(path); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "at byte ") || !strings.Contains(err.Error(), path) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	step := 1 + len(whole)/150
	for n := 0; n < len(whole); n += step {
		damaged(fmt.Sprintf("cut at %d of %d", n, len(whole)), whole[:n])
		other := bytes.Clone(whole)
		other[n] ^= 0x20
		damaged(fmt.Sprintf("byte %d of %d", n, len(whole)), other)
	}
	damaged("more behind the end", append(bytes.Clone(whole), 0))
	damaged("two in one", append(bytes.Clone(whole), whole...))
}

func TestAnAbandonedBackupLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(filepath.Join(dir, "b"), Header{Topics: []Topic{{Partitions: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	w.Abandon()
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
