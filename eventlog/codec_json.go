package eventlog

import (
	"encoding/json"
	"fmt"
)

// Values of our own types, from 32000 on: a JSON object and nothing before it. Kafka's offsets formatter of 3.9 takes every record that
// it reads for an offset commit: it survives a value whose first two bytes are "{\"", which is no version that it knows,
// and dies on a binary value of version 0. Fields may be added within a format; a reader ignores those it doesn't know.

// decodeJSON reads into v, whose format may be newest at most.
func decodeJSON(b []byte, newest int, v Value) (Value, error) {
	t := v.Type()
	if len(b) == 0 || b[0] != '{' {
		return nil, fmt.Errorf("%w: value of %s is no JSON object (%d bytes)", ErrCorrupt, t, len(b))
	}
	// The format is read by itself first: what the other fields are in a newer one can't be known.
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, fmt.Errorf("%w: value of %s: %v", ErrCorrupt, t, err)
	}
	if head.Format > newest {
		return nil, fmt.Errorf("%w: value of %s has format %d, the newest that can be read is %d", ErrUnknownVersion, t, head.Format, newest)
	}
	if head.Format < 1 {
		return nil, fmt.Errorf("%w: value of %s has format %d, the first is 1", ErrCorrupt, t, head.Format)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("%w: value of %s: %v", ErrCorrupt, t, err)
	}
	return v, nil
}

// json writes v, a copy of the writer's own, in its format; 0 stands for the newest.
func (w *writer) json(v Value, format *int, newest int) {
	if *format == 0 {
		*format = newest
	}
	b, err := json.Marshal(v)
	if err != nil {
		w.err = fmt.Errorf("%w: %v", ErrUnencodable, err)
		return
	}
	w.b = append(w.b, b...)
}
