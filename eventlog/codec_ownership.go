package eventlog

import (
	"encoding/json"
	"fmt"
)

// Ownership, type 32000: a JSON object and nothing before it. Kafka's offsets formatter of 3.9 takes every record that it
// reads for an offset commit: it survives a value whose first two bytes are "{\"", which is no version that it knows,
// and dies on a binary value of version 0. Fields may be added within a format; a reader ignores those it doesn't know.

func decodeOwnership(b []byte) (Value, error) {
	if len(b) == 0 || b[0] != '{' {
		return nil, fmt.Errorf("%w: value of %s is no JSON object (%d bytes)", ErrCorrupt, TypeOwnership, len(b))
	}
	// The format is read by itself first: what the other fields are in a newer one can't be known.
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, fmt.Errorf("%w: value of %s: %v", ErrCorrupt, TypeOwnership, err)
	}
	if head.Format > OwnershipFormat {
		return nil, fmt.Errorf("%w: value of %s has format %d, the newest that can be read is %d", ErrUnknownVersion, TypeOwnership, head.Format, OwnershipFormat)
	}
	if head.Format < 1 {
		return nil, fmt.Errorf("%w: value of %s has format %d, the first is 1", ErrCorrupt, TypeOwnership, head.Format)
	}
	v := &Ownership{Claim: -1}
	if err := json.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("%w: value of %s: %v", ErrCorrupt, TypeOwnership, err)
	}
	return v, nil
}

// ownership writes v in its format; 0 stands for the newest.
func (w *writer) ownership(v *Ownership) {
	o := *v
	if o.Format == 0 {
		o.Format = OwnershipFormat
	}
	b, err := json.Marshal(o)
	if err != nil {
		w.err = fmt.Errorf("%w: %v", ErrUnencodable, err)
		return
	}
	w.b = append(w.b, b...)
}
