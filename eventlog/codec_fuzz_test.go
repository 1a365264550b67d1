package eventlog

import (
	"bytes"
	"errors"
	"reflect"
	"runtime"
	"testing"

	"pgregory.net/rapid"
)

func seeds(f *testing.F, add func(Raw)) {
	f.Helper()
	for _, v := range vectors {
		raw := Raw{Key: unhex(f, v.key), Value: unhex(f, v.value)}
		add(raw)
	}
	for i, c := range capturedRecords(f) {
		if i%8 == 0 { // the captures repeat themselves; a part of them covers every shape
			add(c.raw(f))
		}
	}
}

func known(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrUnknownType) || errors.Is(err, ErrUnknownVersion)
}

// FuzzDecodeKey: no input panics, and a key that is read is written as it was.
func FuzzDecodeKey(f *testing.F) {
	seeds(f, func(r Raw) { f.Add(r.Key) })
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := DecodeKey(b)
		if err != nil {
			if !known(err) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		if again := AppendKey(nil, k); !bytes.Equal(again, b) {
			t.Fatalf("%x was read as %+v, written as %x", b, k, again)
		}
	})
}

// FuzzDecodeValue: no input panics or makes the decoder allocate out of proportion, and what is read is written as
// something that is read as the same.
func FuzzDecodeValue(f *testing.F) {
	seeds(f, func(r Raw) { f.Add(int16(Type(uint16(r.Key[0])<<8|uint16(r.Key[1]))), r.Value) })
	f.Fuzz(func(t *testing.T, typ int16, b []byte) {
		v, err := DecodeValue(Type(typ), b)
		if err != nil {
			if !known(err) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		if !(Record{Key{Type: Type(typ)}, v}).encodable() {
			t.Fatalf("read, but can't be written: %+v", v)
		}
		again, err := DecodeValue(v.Type(), AppendValue(nil, v))
		if err != nil || !reflect.DeepEqual(again, v) {
			t.Fatalf("%+v\nread again %+v, %v", v, again, err)
		}
	})
}

func (r Record) encodable() bool {
	_, err := TryEncode(r)
	return err == nil
}

// TestImpossibleLengthsAllocateNothing: a value of a few bytes that announces lists of billions.
func TestImpossibleLengthsAllocateNothing(t *testing.T) {
	value := unhex(t, "0000"+"00000000"+"ffffffff07"+"ffffffff07"+"ffffffff07")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const rounds = 1000
	for range rounds {
		for _, typ := range []Type{TypeTopology, TypeMember, TypeGroup, TypeTargetAssignmentMember, TypeCurrentMemberAssignment, TypeClassicGroup} {
			if _, err := DecodeValue(typ, value); err == nil {
				t.Fatalf("%s was read", typ)
			}
		}
	}
	runtime.ReadMemStats(&after)
	if perDecode := (after.TotalAlloc - before.TotalAlloc) / (6 * rounds); perDecode > 2048 {
		t.Errorf("%d bytes for each refusal", perDecode)
	}
}

// Generators of every record that can be: lists that are empty are nil, as decoders leave them.

func genString() *rapid.Generator[string] { return rapid.StringN(0, 12, 40) }

func genStringPtr() *rapid.Generator[*string] {
	return rapid.Custom(func(t *rapid.T) *string {
		if rapid.Bool().Draw(t, "null") {
			return nil
		}
		s := genString().Draw(t, "string")
		return &s
	})
}

func genList[T any](element func(*rapid.T) T) *rapid.Generator[[]T] {
	return rapid.Custom(func(t *rapid.T) []T {
		var s []T
		for range rapid.IntRange(0, 4).Draw(t, "length") {
			s = append(s, element(t))
		}
		return s
	})
}

func genKeyValue(t *rapid.T) KeyValue {
	return KeyValue{genString().Draw(t, "key"), genString().Draw(t, "value")}
}

func genText(t *rapid.T) string { return genString().Draw(t, "text") }
func genInt16(t *rapid.T) int16 { return rapid.Int16().Draw(t, "int16") }
func genInt32(t *rapid.T) int32 { return rapid.Int32().Draw(t, "int32") }
func genInt64(t *rapid.T) int64 { return rapid.Int64().Draw(t, "int64") }
func genBytes(t *rapid.T) []byte {
	return genList(func(t *rapid.T) byte { return rapid.Byte().Draw(t, "byte") }).Draw(t, "bytes")
}
func genPairs(t *rapid.T) []KeyValue { return genList(genKeyValue).Draw(t, "pairs") }

func genTasks(t *rapid.T, epochs bool) []TaskIDs {
	return genList(func(t *rapid.T) TaskIDs {
		task := TaskIDs{SubtopologyID: genText(t), Partitions: genList(genInt32).Draw(t, "partitions")}
		if epochs {
			for range task.Partitions {
				task.Epochs = append(task.Epochs, genInt32(t))
			}
		}
		return task
	}).Draw(t, "tasks")
}

func genTopicInfo(t *rapid.T) TopicInfo {
	return TopicInfo{genText(t), genInt32(t), genInt16(t), genPairs(t)}
}

func genValue(t *rapid.T, typ Type) Value {
	switch typ {
	case TypeLegacyOffsetCommit:
		return &OffsetCommit{Offset: genInt64(t), LeaderEpoch: -1, Metadata: genText(t), CommitTimestamp: genInt64(t), ExpireTimestamp: -1}
	case TypeOffsetCommit:
		v := &OffsetCommit{Offset: genInt64(t), LeaderEpoch: -1, Metadata: genText(t), CommitTimestamp: genInt64(t), ExpireTimestamp: -1}
		if rapid.Bool().Draw(t, "retention") {
			v.ExpireTimestamp = genInt64(t)
		} else {
			v.LeaderEpoch = genInt32(t)
			copy(v.TopicID[:], genBytes(t))
		}
		return v
	case TypeClassicGroup:
		return &ClassicGroup{genText(t), genInt32(t), genStringPtr().Draw(t, "protocol"), genStringPtr().Draw(t, "leader"), genInt64(t),
			genList(func(t *rapid.T) ClassicMember {
				return ClassicMember{genText(t), genStringPtr().Draw(t, "instance"), genText(t), genText(t), genInt32(t), genInt32(t), genBytes(t), genBytes(t)}
			}).Draw(t, "members")}
	case TypeGroup:
		return &Group{genInt32(t), genInt64(t), genInt32(t), genPairs(t), genInt32(t), genInt32(t), rapid.SampledFrom([]Conversion{0, 1, 2, 3, 4, 127}).Draw(t, "conversion")}
	case TypeMember:
		v := &Member{genStringPtr().Draw(t, "instance"), genStringPtr().Draw(t, "rack"), genText(t), genText(t), genInt32(t), genInt32(t), genText(t), nil, genPairs(t)}
		if rapid.Bool().Draw(t, "endpoint") {
			v.UserEndpoint = &Endpoint{genText(t), rapid.Uint16().Draw(t, "port")}
		}
		return v
	case TypeTargetAssignment:
		return &TargetAssignment{genInt32(t), genInt64(t)}
	case TypeTargetAssignmentMember:
		return &TargetAssignmentMember{genTasks(t, false), genTasks(t, false), genTasks(t, false)}
	case TypeCurrentMemberAssignment:
		return &CurrentMemberAssignment{
			genInt32(t), genInt32(t), rapid.SampledFrom([]MemberState{1, 2, 3, 127}).Draw(t, "state"),
			genTasks(t, true), genTasks(t, false), genTasks(t, false), genTasks(t, true), genTasks(t, false), genTasks(t, false),
		}
	case TypeTopology:
		return &Topology{genInt32(t), genList(func(t *rapid.T) Subtopology {
			return Subtopology{
				genText(t), genList(genText).Draw(t, "sources"), genList(genText).Draw(t, "regex"), genList(genTopicInfo).Draw(t, "changelogs"),
				genList(genText).Draw(t, "sinks"), genList(genTopicInfo).Draw(t, "repartition"),
				genList(func(t *rapid.T) CopartitionGroup {
					return CopartitionGroup{genList(genInt16).Draw(t, "a"), genList(genInt16).Draw(t, "b"), genList(genInt16).Draw(t, "c")}
				}).Draw(t, "copartition"),
			}
		}).Draw(t, "subtopologies")}
	case TypeOwnership:
		return &Ownership{OwnershipFormat, genInt32(t), genText(t), genInt64(t), genInt16(t), genInt64(t), rapid.Bool().Draw(t, "released"), genText(t), genText(t), genInt32(t), genInt64(t), genInt32(t)}
	case TypeDescriptionRefusal:
		return &DescriptionRefusal{DescriptionRefusalFormat, genInt32(t), genText(t), genText(t), genText(t), genInt64(t)}
	case TypeGroupConfig:
		configs := map[string]string{}
		for _, name := range genList(genText).Draw(t, "names") {
			configs[name] = genText(t)
		}
		if len(configs) == 0 {
			configs = nil
		}
		return &GroupConfig{GroupConfigFormat, configs}
	}
	panic(typ)
}

func genRecord(t *rapid.T) Record {
	typ := rapid.SampledFrom([]Type{0, 1, 2, 17, 19, 20, 21, 22, 23, TypeOwnership, TypeDescriptionRefusal, TypeGroupConfig}).Draw(t, "type")
	k := Key{Type: typ}
	switch typ.shape() {
	case shapeGroup:
		k.Group = genText(t)
	case shapeMember:
		k.Group, k.Member = genText(t), genText(t)
	case shapeOffset:
		k.Group, k.Topic, k.Partition = genText(t), genText(t), genInt32(t)
	}
	if rapid.IntRange(0, 9).Draw(t, "tombstone") == 0 {
		return Record{Key: k}
	}
	return Record{k, genValue(t, typ)}
}

func TestWhatIsEncodedIsDecodedEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRecord(t)
		raw := Encode(r)
		got, err := Decode(raw)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, r) {
			t.Fatalf("got  %+v\nwant %+v", got, r)
		}
		if again := Encode(got); !reflect.DeepEqual(again, raw) {
			t.Fatalf("encoded again: %x, was %x", again, raw)
		}
		if _, err := JSON(r); err != nil {
			t.Fatal(err)
		}
	})
}
