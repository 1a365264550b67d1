package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"streamkeeper/plugin"
)

// patience is how long a future may take. A coordinator waits for about four seconds; a test machine may be busy.
const patience = 10 * time.Second

// Run runs the suite.
func Run(t *testing.T, open func(t *testing.T) plugin.Plugin) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(t *testing.T, p subject)
	}{
		{"NameIsFixed", nameIsFixed},
		{"UnknownGroup", unknownGroup},
		{"SetThenGet", setThenGet},
		{"SetAgain", setAgain},
		{"DeleteThenGet", deleteThenGet},
		{"DeleteIsOfOneGroup", deleteIsOfOneGroup},
		{"Epochs", epochs},
		{"EpochsBeginAgainAfterDelete", epochsBeginAgain},
		{"EpochsAreListed", epochsListed},
		{"Copies", copies},
		{"GroupNames", groupNames},
		{"TextsInDescriptions", texts},
		{"OddShapes", oddShapes},
		{"LargeDescriptions", large},
		{"Concurrency", concurrency},
		{"CancelledContext", cancelled},
		{"Close", closes},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := open(t)
			if p == nil {
				t.Fatal("open returned nil")
			}
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				if err := p.Close(ctx); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			c.run(t, subject{p})
		})
	}
}

// subject calls a plugin and waits.
type subject struct{ plugin.Plugin }

var errNoFuture = errors.New("the method returned no future (nil)")

func await[T any](what string, call func(context.Context) *plugin.Future[T]) (T, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	f := call(ctx)
	if f == nil {
		var none T
		return none, fmt.Errorf("%s: %w", what, errNoFuture)
	}
	v, err := f.Wait(ctx)
	if err != nil {
		return v, fmt.Errorf("%s: %w", what, err)
	}
	return v, nil
}

func (p subject) set(group string, epoch int32, d *plugin.Description) error {
	_, err := await(fmt.Sprintf("Set(%.80q, %d)", group, epoch), func(ctx context.Context) *plugin.Future[plugin.Void] {
		return p.Set(ctx, group, epoch, d.Clone())
	})
	return err
}

func (p subject) get(group string, epoch int32) (*plugin.Description, error) {
	return await(fmt.Sprintf("Get(%.80q, %d)", group, epoch), func(ctx context.Context) *plugin.Future[*plugin.Description] {
		return p.Get(ctx, group, epoch)
	})
}

func (p subject) delete(group string) error {
	_, err := await(fmt.Sprintf("Delete(%.80q)", group), func(ctx context.Context) *plugin.Future[plugin.Void] {
		return p.Delete(ctx, group)
	})
	return err
}

func (p subject) mustSet(t *testing.T, group string, epoch int32, d *plugin.Description) {
	t.Helper()
	if err := p.set(group, epoch, d); err != nil {
		t.Fatal(err)
	}
}

func (p subject) mustDelete(t *testing.T, group string) {
	t.Helper()
	if err := p.delete(group); err != nil {
		t.Fatal(err)
	}
}

// want compares what Get returns; nil wants nothing.
func (p subject) want(t *testing.T, group string, epoch int32, want *plugin.Description) {
	t.Helper()
	got, err := p.get(group, epoch)
	if err != nil {
		t.Error(err)
	} else if !got.Equal(want) {
		t.Errorf("Get(%.80q, %d) = %s, want %s", group, epoch, show(got), show(want))
	}
}

// show prints a description; a large one only in part.
func show(d *plugin.Description) string {
	b, err := d.MarshalJSON()
	if err != nil {
		return err.Error()
	}
	if len(b) > 500 {
		return fmt.Sprintf("%s… (%d bytes)", b[:500], len(b))
	}
	return string(b)
}

// group is an id of this test.
func group(t *testing.T, name string) string { return "conformance/" + t.Name() + "/" + name }
