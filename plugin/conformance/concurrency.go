package conformance

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"streamkeeper/plugin"
)

// concurrency: calls for one group and for many at once. Whatever the order was, a Get sees nothing, or something that
// was set; and when all is quiet the last word counts.
func concurrency(t *testing.T, p subject) {
	const workers, rounds = 8, 25
	shared := group(t, "shared")
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			own := group(t, fmt.Sprintf("own-%d", w))
			for r := range rounds {
				mark := fmt.Sprintf("%d-%d", w, r)
				for _, err := range []error{
					p.set(own, int32(r), sample(mark)),
					p.set(shared, 0, sample("same")),
				} {
					if err != nil {
						t.Error(err)
					}
				}
				p.want(t, own, int32(r), sample(mark))
				if got, err := p.get(shared, 0); err != nil {
					t.Error(err)
				} else if got != nil && !got.Equal(sample("same")) {
					t.Errorf("half of something: %s", show(got))
				}
				if r%5 == w%5 {
					if err := p.delete(shared); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	for w := range workers {
		p.want(t, group(t, fmt.Sprintf("own-%d", w)), rounds-1, sample(fmt.Sprintf("%d-%d", w, rounds-1)))
	}
	p.mustDelete(t, shared)
	p.want(t, shared, 0, nil)
}

// cancelled: with a context that has ended, or ends during the call, the future completes soon, whatever its result, and the plugin
// works on.
func cancelled(t *testing.T, p subject) {
	ended, end := context.WithCancel(context.Background())
	end()
	soon, stop := context.WithTimeout(context.Background(), time.Millisecond)
	defer stop()
	id := group(t, "a")
	for name, ctx := range map[string]context.Context{"ended": ended, "ends soon": soon} {
		for op, done := range map[string]<-chan struct{}{
			"Set": doneOf(p.Set(ctx, id, 0, sample("cancelled"))), "Get": doneOf(p.Get(ctx, id, 0)), "Delete": doneOf(p.Delete(ctx, id)),
		} {
			if done == nil {
				t.Errorf("%s with a context that %s returned no future", op, name)
				continue
			}
			select {
			case <-done:
			case <-time.After(patience):
				t.Errorf("%s with a context that %s: the future did not complete within %s", op, name, patience)
			}
		}
	}
	other := group(t, "b") // what was cancelled may still happen to a
	p.mustSet(t, other, 1, sample("alive"))
	p.want(t, other, 1, sample("alive"))
}

func doneOf[T any](f *plugin.Future[T]) <-chan struct{} {
	if f == nil {
		return nil
	}
	return f.Done()
}

// closes: after Close every call fails, none hangs, and a second Close is fine.
func closes(t *testing.T, p subject) {
	id := group(t, "a")
	p.mustSet(t, id, 0, sample("a"))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i := range 2 {
		if err := p.Close(ctx); err != nil {
			t.Fatalf("Close, call %d: %v", i+1, err)
		}
	}
	if err := p.set(id, 1, sample("late")); err == nil {
		t.Error("Set succeeds after Close")
	} else if plugin.IsPermanent(err) {
		t.Errorf("a Set after Close is refused for good, so that the description would never be asked for again: %v", err)
	}
	if d, err := p.get(id, 0); err == nil {
		t.Errorf("Get after Close says %s; a caller would take that for the truth", show(d))
	}
	if err := p.delete(id); err == nil {
		t.Error("Delete succeeds after Close; the coordinator would take the description for deleted")
	}
	if name := p.Name(); name == "" {
		t.Error("the name is gone after Close")
	}
}
