package history

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
)

// RecordsOf decodes a batch of the record log; of another topic, or a compressed one, it has none.
func RecordsOf(raw []byte) []eventlog.Record {
	var batch kmsg.RecordBatch
	if batch.ReadFrom(raw) != nil || batch.Attributes&7 != 0 {
		return nil
	}
	var out []eventlog.Record
	for rest := batch.Records; len(rest) > 0; {
		n, size := binary.Varint(rest)
		end := size + int(n)
		if size <= 0 || n <= 0 || end > len(rest) {
			return out
		}
		var r kmsg.Record
		if r.ReadFrom(rest[:end]) != nil {
			return out
		}
		rest = rest[end:]
		if rec, err := eventlog.Decode(eventlog.Raw{Key: r.Key, Value: r.Value}); err == nil {
			out = append(out, rec)
		}
	}
	return out
}
