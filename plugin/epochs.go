package plugin

import (
	"context"
	"errors"
)

// Epochs is what a Plugin may offer besides: earlier topology epochs of a group, so that it can be seen what an upgrade of an
// application changed. Kafka knows nothing of it: on the wire there is the description of the current epoch alone.
type Epochs interface {
	// Epochs returns the topology epochs for which Get finds a description of the group, ascending; an empty list where there is
	// none. How many are kept is the plugin's affair.
	Epochs(ctx context.Context, group string) *Future[[]int32]
}

// ErrNoEpochs is the failure of Traced.Epochs where the plugin does not offer them.
var ErrNoEpochs = errors.New("the topology description plugin does not tell which topology epochs it holds")

// Epochs asks the plugin for the topology epochs that it holds of a group, as Get reads a description. done gets nil unless the
// outcome is Listed.
func (t *Traced) Epochs(ctx context.Context, group string, done func([]int32, Outcome)) {
	c := &call{t: t, op: opEpochs, group: group}
	var list []int32 // written before the outcome Listed is delivered
	begin(ctx, c, false, func(ctx context.Context) *Future[[]int32] {
		p, ok := t.plugin.(Epochs)
		if !ok {
			return Failed[[]int32](ErrNoEpochs)
		}
		return p.Epochs(ctx, group)
	}, func(epochs []int32) Outcome {
		list = append([]int32(nil), epochs...)
		return Outcome{Kind: Listed}
	}, func(o Outcome) {
		if o.Kind != Listed {
			done(nil, o)
			return
		}
		done(list, o)
	})
}
