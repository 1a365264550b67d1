package eventlog

import "fmt"

// Keys. Every key starts with its type; what follows is never "flexible":
//
//	+--------+------------------------------------------------+
//	| int16  | fields, in this order                          |
//	| type   | string = int16 length + UTF-8, int32 big endian|
//	+--------+------------------------------------------------+
//
//	type            fields
//	0, 1            group string, topic string, partition int32
//	2, 17, 20, 23   group string
//	19, 21, 22      group string, member string
//	32001, 32002    group string
//	32000           none: one ownership record per partition of the log

// keyShape says which fields a type's key has.
type keyShape int8

const (
	shapeUnknown keyShape = iota
	shapeGroup
	shapeMember
	shapeOffset
	shapePartition
)

func (t Type) shape() keyShape {
	switch t {
	case TypeLegacyOffsetCommit, TypeOffsetCommit:
		return shapeOffset
	case TypeClassicGroup, TypeGroup, TypeTargetAssignment, TypeTopology, TypeGroupConfig, TypeDescriptionRefusal:
		return shapeGroup
	case TypeMember, TypeTargetAssignmentMember, TypeCurrentMemberAssignment:
		return shapeMember
	case TypeOwnership:
		return shapePartition
	}
	return shapeUnknown
}

// Known says that records of the type can be read.
func (t Type) Known() bool { return t.shape() != shapeUnknown }

// DecodeKey reads a record's key. The error wraps ErrUnknownType for a type that is not ours (types of other kinds of
// groups among them), whose key has nothing but its type then, and ErrCorrupt for anything else that is wrong. Key does not alias b.
func DecodeKey(b []byte) (Key, error) {
	r := newReader(b)
	k := Key{Type: Type(r.Int16())}
	if r.bad() {
		return Key{}, fmt.Errorf("%w: key of %d bytes, its type alone takes 2", ErrCorrupt, len(b))
	}
	switch k.Type.shape() {
	case shapeUnknown:
		return k, fmt.Errorf("%w %d", ErrUnknownType, int16(k.Type))
	case shapeGroup:
		k.Group = r.str(false)
	case shapeMember:
		k.Group, k.Member = r.str(false), r.str(false)
	case shapeOffset:
		k.Group, k.Topic, k.Partition = r.str(false), r.str(false), r.Int32()
	case shapePartition:
	}
	if err := r.end("key", k.Type, len(b)); err != nil {
		return Key{}, err
	}
	return k, nil
}

// end returns what is wrong with the input after the last read of a key or value of size bytes.
func (r *reader) end(part string, t Type, size int) error {
	switch {
	case r.bad():
		return fmt.Errorf("%w: %s of %s ends early or holds an impossible length (%d bytes)", ErrCorrupt, part, t, size)
	case len(r.Src) > 0:
		return fmt.Errorf("%w: %s of %s has %d bytes too many (of %d)", ErrCorrupt, part, t, len(r.Src), size)
	}
	return nil
}

// AppendKey appends the bytes of k to dst. It panics where TryEncode would return an error.
func AppendKey(dst []byte, k Key) []byte {
	w := writer{b: dst}
	w.key(k)
	return w.must()
}

func (w *writer) must() []byte {
	if w.err != nil {
		panic(w.err)
	}
	return w.b
}

func (w *writer) key(k Key) {
	w.int16(int16(k.Type))
	switch k.Type.shape() {
	case shapeUnknown:
		w.err = fmt.Errorf("%w: its key has the %w %d", ErrUnencodable, ErrUnknownType, int16(k.Type))
	case shapeGroup:
		w.str(k.Group, false)
	case shapeMember:
		w.str(k.Group, false)
		w.str(k.Member, false)
	case shapeOffset:
		w.str(k.Group, false)
		w.str(k.Topic, false)
		w.int32(k.Partition)
	case shapePartition:
	}
}
