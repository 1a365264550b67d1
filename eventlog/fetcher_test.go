package eventlog

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestFetchesKeepTheirPace(t *testing.T) {
	for _, test := range []struct {
		name    string
		brought time.Duration // since the last fetch that brought records came back; -1: the last brought none
		awaited time.Duration // when somebody begins to wait for a record; -1: nobody
		rests   time.Duration
	}{
		{"nothing was brought", -1, -1, 0},
		{"records were brought", 0, -1, 5 * time.Millisecond},
		{"records were brought a while ago", 3 * time.Millisecond, -1, 2 * time.Millisecond},
		{"records were brought long ago", time.Second, -1, 0},
		{"one is awaited already", 0, 0, time.Millisecond},
		{"one is awaited in a moment", 0, 3 * time.Millisecond, 3 * time.Millisecond},
		{"one is awaited, records were brought a while ago", 4 * time.Millisecond, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var a awaited
				f := &fetcher{t: &tail{ctx: t.Context()}, soon: a.of(1)}
				if test.brought >= 0 {
					f.brought = time.Now().Add(-test.brought)
				}
				if test.awaited >= 0 {
					time.AfterFunc(test.awaited, func() {
						a.from(2) // another broker is not in a hurry
						a.from(1)
						a.from(1)
					})
				}
				synctest.Wait()
				began := time.Now()
				if !f.pace() {
					t.Fatal("it has ended")
				}
				if got := time.Since(began); got != test.rests {
					t.Errorf("rests %v, want %v", got, test.rests)
				}
			})
		})
	}
	t.Run("the end", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		f := &fetcher{t: &tail{ctx: ctx}, brought: time.Now().Add(time.Hour)}
		if f.pace() {
			t.Error("goes on")
		}
	})
}

func TestWhatIsAwaitedIsReadSoon(t *testing.T) {
	c := fakeCluster(t)
	k := open(t, c.ListenAddrs(), partitions(1))
	soon := k.awaited.of(k.leaders.get(0).node)
	told := func() bool {
		select {
		case <-soon:
			return true
		default:
			return false
		}
	}
	w := claim(t, k, 0)
	if !told() {
		t.Error("a claim: nothing is read sooner")
	}
	barrier := func() {
		acked := make(chan error, 1)
		w.Barrier(func(_ int64, err error) { acked <- err })
		if err := <-acked; err != nil {
			t.Fatal(err)
		}
	}
	mustPut(t, w, kv("a", "1"))
	if told() {
		t.Error("an append that nobody waits for hastens the reading")
	}
	barrier()
	if !told() {
		t.Error("a barrier of its own: nothing is read sooner")
	}
	w.Append(1, []Raw{kv("a", "2")}, nil)
	barrier()
	if !told() {
		t.Error("a barrier behind an append: nothing is read sooner")
	}
}
