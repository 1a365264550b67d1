package eventlog

import "fmt"

// Values. Every value but those of our own types (codec_json.go) starts with the version of its layout:
//
//	+---------+---------------------------------------------------+
//	| int16   | fields of the message at that version             |
//	| version | (flexible for types 17–23 and 1 from version 4 on)|
//	+---------+---------------------------------------------------+
//
//	type    versions read   version written
//	0       0               0
//	1       0–4             4; 1 where the value has an expire timestamp
//	2       0–4             3
//	17–23   0               0
//	32000   JSON, format 1  JSON, format 1
//	32001   JSON, format 1  JSON, format 1
//	32002   JSON, format 1  JSON, format 1
//
// Flexible forms: string and array lengths are uvarint(n+1) with 0 for null, and each struct ends with a tag section:
// uvarint count, then per field uvarint tag, uvarint size, bytes. Tagged fields are written, ascending by tag, only where
// they differ from their default; unknown ones are skipped on reading and not kept.

// valueVersionMax is the newest version of t's value that can be read.
func valueVersionMax(t Type) int16 {
	if t == TypeOffsetCommit || t == TypeClassicGroup {
		return 4
	}
	return 0
}

// DecodeValue reads the value of a record of type t; tombstones have none and are the caller's business. The error
// wraps ErrUnknownVersion for a version that this program can't read, ErrUnknownType where t is not ours, and ErrCorrupt for everything else,
// bytes left over included. Empty lists are nil in the result, which does not alias b.
func DecodeValue(t Type, b []byte) (Value, error) {
	switch t {
	case TypeOwnership:
		return decodeJSON(b, OwnershipFormat, &Ownership{Claim: -1})
	case TypeDescriptionRefusal:
		return decodeJSON(b, DescriptionRefusalFormat, &DescriptionRefusal{})
	case TypeGroupConfig:
		return decodeJSON(b, GroupConfigFormat, &GroupConfig{})
	}
	if t.shape() == shapeUnknown {
		return nil, fmt.Errorf("%w %d", ErrUnknownType, int16(t))
	}
	r := newReader(b)
	version := r.Int16()
	if r.bad() {
		return nil, fmt.Errorf("%w: value of %s has %d bytes, its version alone takes 2", ErrCorrupt, t, len(b))
	}
	if version < 0 || version > valueVersionMax(t) {
		return nil, fmt.Errorf("%w: value of %s has version %d, the newest that can be read is %d", ErrUnknownVersion, t, version, valueVersionMax(t))
	}
	var v Value
	switch t {
	case TypeLegacyOffsetCommit, TypeOffsetCommit:
		v = decodeOffsetCommit(&r, version)
	case TypeClassicGroup:
		v = decodeClassicGroup(&r, version)
	case TypeGroup:
		v = decodeGroup(&r)
	case TypeMember:
		v = decodeMember(&r)
	case TypeTargetAssignment:
		v = decodeTargetAssignment(&r)
	case TypeTargetAssignmentMember:
		v = decodeTargetAssignmentMember(&r)
	case TypeCurrentMemberAssignment:
		v = decodeCurrentMemberAssignment(&r)
	case TypeTopology:
		v = decodeTopology(&r)
	}
	if err := r.end(fmt.Sprintf("version %d value", version), t, len(b)); err != nil {
		return nil, err
	}
	return v, nil
}

// AppendValue appends the bytes of v, version first, to dst. It panics where TryEncode would return an error.
func AppendValue(dst []byte, v Value) []byte {
	w := writer{b: dst}
	w.value(v)
	return w.must()
}

func (w *writer) value(v Value) {
	switch v := v.(type) {
	case *OffsetCommit:
		w.offsetCommit(v)
	case *ClassicGroup:
		w.classicGroup(v)
	case *Group:
		w.group(v)
	case *Member:
		w.member(v)
	case *TargetAssignment:
		w.targetAssignment(v)
	case *TargetAssignmentMember:
		w.targetAssignmentMember(v)
	case *CurrentMemberAssignment:
		w.currentMemberAssignment(v)
	case *Topology:
		w.topology(v)
	case *Ownership:
		o := *v
		w.json(&o, &o.Format, OwnershipFormat)
	case *DescriptionRefusal:
		o := *v
		w.json(&o, &o.Format, DescriptionRefusalFormat)
	case *GroupConfig:
		o := *v
		w.json(&o, &o.Format, GroupConfigFormat)
	default:
		w.err = fmt.Errorf("%w: %T is no value of ours", ErrUnencodable, v)
	}
}

// TryEncode returns the bytes of r. The error wraps ErrUnencodable: a string is longer than StringBytesMax, or key and
// value are of different types.
func TryEncode(r Record) (Raw, error) {
	var k, v writer
	k.key(r.Key)
	if r.Value != nil && k.err == nil {
		switch o, isOffset := r.Value.(*OffsetCommit); {
		case r.Key.Type == TypeLegacyOffsetCommit && isOffset:
			v.legacyOffsetCommit(o)
		case r.Key.Type != r.Value.Type():
			v.err = fmt.Errorf("%w: key of %s, value of %s", ErrUnencodable, r.Key.Type, r.Value.Type())
		default:
			v.value(r.Value)
		}
	}
	switch {
	case k.err != nil:
		return Raw{}, fmt.Errorf("key: %w", k.err)
	case v.err != nil:
		return Raw{}, fmt.Errorf("value of %s of group %q: %w", r.Key.Type, r.Key.Group, v.err)
	}
	return Raw{Key: k.b, Value: v.b}, nil
}

// Encode is TryEncode for records whose strings are known to fit (they came in through the wire, whose readers have the same
// limit, or from the log); it panics where TryEncode would return an error.
func Encode(r Record) Raw {
	raw, err := TryEncode(r)
	if err != nil {
		panic(err)
	}
	return raw
}

// Decode reads a record; a nil value is a tombstone. Errors are those of DecodeKey and DecodeValue.
func Decode(raw Raw) (Record, error) {
	k, err := DecodeKey(raw.Key)
	if err != nil || raw.Value == nil {
		return Record{Key: k}, err
	}
	v, err := DecodeValue(k.Type, raw.Value)
	if err != nil {
		return Record{Key: k}, err
	}
	return Record{Key: k, Value: v}, nil
}
