package memory

import (
	"math"
	"strconv"

	"streamkeeper/plugin"
)

// Factory makes the plugin from settings.
func Factory() plugin.Factory {
	return plugin.Factory{
		Name:    Name,
		Summary: "in the memory of this replica: for trying things out; a restart loses everything",
		Settings: []plugin.Setting{
			{Name: "bytes.max", Default: strconv.Itoa(BytesMaxDefault), Doc: "memory for all descriptions together"},
			{Name: "description.bytes.max", Default: strconv.Itoa(DescriptionBytesMaxDefault), Doc: "memory for one description; larger ones are refused for good"},
			{Name: "epochs.max", Default: strconv.Itoa(EpochsMaxDefault), Doc: "topology epochs kept per group, the highest ones"},
		},
		Open: func(v *plugin.Values) (plugin.Plugin, error) {
			cfg := Config{
				BytesMax:            int(v.Int("bytes.max", 1, math.MaxInt)),
				DescriptionBytesMax: int(v.Int("description.bytes.max", 1, math.MaxInt)),
				EpochsMax:           int(v.Int("epochs.max", 1, 1000)),
			}
			if err := v.Err(); err != nil {
				return nil, err
			}
			return New(cfg), nil
		},
	}
}
