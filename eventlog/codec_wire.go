package eventlog

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
)

// What can be wrong with the bytes of a record.
var (
	// ErrUnknownType: the key is of a type that is not ours (another kind of group, or a newer program's). Readers skip
	// and count such records, as Kafka's loader does.
	ErrUnknownType = errors.New("unknown record type")
	// ErrUnknownVersion: the type is ours, but its value has a version that this program can't read. The partition
	// must not be served: the record may say anything.
	ErrUnknownVersion = errors.New("unknown record version")
	// ErrCorrupt: the bytes are not what their type and version promise.
	ErrCorrupt = errors.New("corrupt record")
	// ErrUnencodable: a record holds something that the format has no room for; see TryEncode.
	ErrUnencodable = errors.New("record can't be encoded")
)

// StringBytesMax is the length of the longest string in a record, in bytes of UTF-8. Kafka's generated readers refuse
// longer ones everywhere, and a key's length prefix has 16 bits.
const StringBytesMax = 1<<15 - 1

// reader decodes Kafka's primitive types. After the first violation all reads return zero values and bad() is true:
// callers check once, at the end. Compact forms are those of "flexible" message versions.
type reader struct{ kbin.Reader }

func newReader(b []byte) reader { return reader{kbin.Reader{Src: b}} }

// fail marks the input as malformed; a span of negative length is how kbin is told.
func (r *reader) fail() { r.Span(-1) }

func (r *reader) bad() bool { return !r.Ok() }

func (r *reader) text(length int) string {
	if length > StringBytesMax {
		r.fail()
	}
	return string(r.Span(length))
}

// str reads a string that may not be null.
func (r *reader) str(flexible bool) string {
	if flexible {
		return r.text(int(r.Uvarint()) - 1)
	}
	return r.text(int(r.Int16()))
}

// nstr reads a nullable string.
func (r *reader) nstr(flexible bool) *string {
	var n int
	if flexible {
		n = int(r.Uvarint()) - 1
	} else {
		n = int(r.Int16())
	}
	if n == -1 || r.bad() {
		return nil
	}
	s := r.text(n)
	return &s
}

// blob reads bytes that may not be null; empty ones are nil. The result does not alias the input.
func (r *reader) blob(flexible bool) []byte {
	var n int
	if flexible {
		n = int(r.Uvarint()) - 1
	} else {
		n = int(r.Int32())
	}
	b := r.Span(n)
	if len(b) == 0 {
		return nil
	}
	return append([]byte(nil), b...)
}

// count reads the length of an array that may not be null. bytesMin is the size of its smallest element: a length that
// the rest of the input can't hold is refused before anything is allocated for it.
func (r *reader) count(flexible bool, bytesMin int) int {
	var n int
	if flexible {
		n = int(r.Uvarint()) - 1
	} else {
		n = int(r.Int32())
	}
	if n < 0 || n > len(r.Src)/bytesMin {
		r.fail()
		return 0
	}
	return n
}

// countOrNull is count for a compact array that may be null; null is read as empty.
func (r *reader) countOrNull(bytesMin int) int {
	if len(r.Src) > 0 && r.Src[0] == 0 {
		r.Src = r.Src[1:]
		return 0
	}
	return r.count(true, bytesMin)
}

// list reads a compact array; an empty one is nil, so that equal values are deeply equal.
func list[T any](r *reader, bytesMin int, element func(*reader) T) []T {
	return elements(r, r.count(true, bytesMin), element)
}

func elements[T any](r *reader, n int, element func(*reader) T) []T {
	if n == 0 {
		return nil
	}
	s := make([]T, n)
	for i := range s {
		if r.bad() {
			return nil
		}
		s[i] = element(r)
	}
	return s
}

// tags reads a tag section. field reads the fields it knows and returns false for others, which are skipped; nil knows
// none. A field must fill its announced size exactly.
func (r *reader) tags(field func(tag uint32, f *reader) bool) {
	n := int(r.Uvarint())
	if n > len(r.Src)/2 { // tag and size take a byte each
		r.fail()
		return
	}
	for ; n > 0 && !r.bad(); n-- {
		tag := r.Uvarint()
		f := newReader(r.Span(int(r.Uvarint())))
		if field != nil && !r.bad() && field(tag, &f) && (f.bad() || len(f.Src) > 0) {
			r.fail()
		}
	}
}

func strings1(r *reader) string { return r.str(true) }
func int16s(r *reader) int16    { return r.Int16() }
func int32s(r *reader) int32    { return r.Int32() }

func keyValue(r *reader) KeyValue {
	kv := KeyValue{Key: r.str(true), Value: r.str(true)}
	r.tags(nil)
	return kv
}

// keyValueBytesMin: two empty strings and an empty tag section.
const keyValueBytesMin = 3

// writer encodes Kafka's primitive types onto b. err is the first thing that did not fit the format.
type writer struct {
	b   []byte
	err error
}

func (w *writer) int8(v int8)   { w.b = kbin.AppendInt8(w.b, v) }
func (w *writer) int16(v int16) { w.b = kbin.AppendInt16(w.b, v) }
func (w *writer) int32(v int32) { w.b = kbin.AppendInt32(w.b, v) }
func (w *writer) int64(v int64) { w.b = kbin.AppendInt64(w.b, v) }

func (w *writer) room(s string) {
	if len(s) > StringBytesMax && w.err == nil {
		w.err = fmt.Errorf("%w: a string of %d bytes (%.40q…), the longest possible has %d", ErrUnencodable, len(s), s, StringBytesMax)
	}
}

func (w *writer) str(s string, flexible bool) {
	w.room(s)
	if flexible {
		w.b = kbin.AppendCompactString(w.b, s)
	} else {
		w.b = kbin.AppendString(w.b, s)
	}
}

func (w *writer) nstr(s *string, flexible bool) {
	switch {
	case s != nil:
		w.str(*s, flexible)
	case flexible:
		w.b = append(w.b, 0)
	default:
		w.int16(-1)
	}
}

func (w *writer) uvarint(n int) { w.b = kbin.AppendUvarint(w.b, uint32(n)) }
func (w *writer) count(n int)   { w.uvarint(n + 1) }
func (w *writer) noTags()       { w.b = append(w.b, 0) }

// tag writes one tagged field. Its size comes before its bytes, so these are written aside.
func (w *writer) tag(tag int, field func(f *writer)) {
	var f writer
	field(&f)
	w.uvarint(tag)
	w.uvarint(len(f.b))
	w.b = append(w.b, f.b...)
	if w.err == nil {
		w.err = f.err
	}
}

func writeList[T any](w *writer, s []T, element func(*writer, T)) {
	w.count(len(s))
	for _, v := range s {
		element(w, v)
	}
}

func (w *writer) strings(s []string) { writeList(w, s, func(w *writer, v string) { w.str(v, true) }) }
func (w *writer) int16s(s []int16)   { writeList(w, s, (*writer).int16) }
func (w *writer) int32s(s []int32)   { writeList(w, s, (*writer).int32) }

func (w *writer) keyValues(s []KeyValue) {
	writeList(w, s, func(w *writer, kv KeyValue) {
		w.str(kv.Key, true)
		w.str(kv.Value, true)
		w.noTags()
	})
}
