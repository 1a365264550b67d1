package eventlog

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func ptr(s string) *string { return &s }

// vectors are one record each, written by Kafka 4.4's own serializers.
var vectors = []struct {
	name, key, value string
	record           Record
}{
	{"member", "0013000361707000026d31", "00000000046369640a2f31302e302e302e31000493e00000000005702d6d31ff0100",
		Record{Key{Type: TypeMember, Group: "app", Member: "m1"}, &Member{ClientID: "cid", ClientHost: "/10.0.0.1", RebalanceTimeoutMs: 300000, ProcessID: "p-m1"}}},
	{"member with everything", "0013000361707000026d31", "00000369310372310263032f68ffffffff000000000270010268ffff0002026b02760000",
		Record{Key{Type: TypeMember, Group: "app", Member: "m1"}, &Member{
			InstanceID: ptr("i1"), RackID: ptr("r1"), ClientID: "c", ClientHost: "/h", RebalanceTimeoutMs: -1, ProcessID: "p",
			UserEndpoint: &Endpoint{"h", 65535}, ClientTags: []KeyValue{{"k", "v"}},
		}}},
	{"topology", "00170003617070", "0000000000000202300203696e01010101010000",
		Record{Key{Type: TypeTopology, Group: "app"}, &Topology{Subtopologies: []Subtopology{{SubtopologyID: "0", SourceTopics: []string{"in"}}}}}},
	{"group", "00110003617070", "0000000000029197eb415aef301d02000400000000011902156e756d2e7374616e6462792e7265706c69636173023000",
		Record{Key{Type: TypeGroup, Group: "app"}, &Group{
			Epoch: 2, MetadataHash: -0x6e6814bea510cfe3, ValidatedTopologyEpoch: 0, LastAssignmentConfigs: []KeyValue{{"num.standby.replicas", "0"}},
			StoredDescriptionTopologyEpoch: EpochNone, FailedDescriptionTopologyEpoch: EpochNone,
		}}},
	{"group with description epochs", "00110003617070", "0000000000030000000000000001030004000000000204fffffffe030400000000",
		Record{Key{Type: TypeGroup, Group: "app"}, &Group{Epoch: 3, MetadataHash: 1, StoredDescriptionTopologyEpoch: EpochUncertain}}},
	{"group of defaults", "00110003617070", "000000000003000000000000000100",
		Record{Key{Type: TypeGroup, Group: "app"}, &Group{
			Epoch: 3, MetadataHash: 1,
			ValidatedTopologyEpoch: EpochNone, StoredDescriptionTopologyEpoch: EpochNone, FailedDescriptionTopologyEpoch: EpochNone,
		}}},
	{"target of a member", "0015000361707000026d31", "0000020230050000000000000001000000020000000300010100",
		Record{Key{Type: TypeTargetAssignmentMember, Group: "app", Member: "m1"}, &TargetAssignmentMember{Active: []TaskIDs{{SubtopologyID: "0", Partitions: []int32{0, 1, 2, 3}}}}}},
	{"target", "00140003617070", "00000000000201000800000000000f4240",
		Record{Key{Type: TypeTargetAssignment, Group: "app"}, &TargetAssignment{2, 1000000}}},
	{"target without time", "00140003617070", "00000000000500",
		Record{Key{Type: TypeTargetAssignment, Group: "app"}, &TargetAssignment{5, 0}}},
	{"current assignment", "0016000361707000026d31", "000000000002000000000102023005000000000000000100000002000000030100110500000002000000020000000200000002010101010100",
		Record{Key{Type: TypeCurrentMemberAssignment, Group: "app", Member: "m1"}, &CurrentMemberAssignment{
			MemberEpoch: 2, State: MemberStable, Active: []TaskIDs{{"0", []int32{0, 1, 2, 3}, []int32{2, 2, 2, 2}}},
		}}},
	{"offset", "000100036170700002696e00000001", "0004000000000000002affffffff0100000000000f424000",
		Record{offsetKey, &OffsetCommit{Offset: 42, LeaderEpoch: -1, CommitTimestamp: 1000000, ExpireTimestamp: -1}}},
	{"offset with everything", "000100036170700002696e00000001", "0004000000000000002a00000007026d00000000000f424001001000000000000000010000000000000002",
		Record{offsetKey, &OffsetCommit{Offset: 42, LeaderEpoch: 7, Metadata: "m", CommitTimestamp: 1000000, ExpireTimestamp: -1, TopicID: [16]byte{7: 1, 15: 2}}}},
	{"offset with retention", "000100036170700002696e00000001", "0001000000000000002a00016d00000000000f424000000000001e8480",
		Record{offsetKey, &OffsetCommit{Offset: 42, LeaderEpoch: -1, Metadata: "m", CommitTimestamp: 1000000, ExpireTimestamp: 2000000}}},
	{"tombstone", "00170003617070", "", Record{Key: Key{Type: TypeTopology, Group: "app"}}},
	{"ownership", "7d00", hex.EncodeToString([]byte(
		`{"format":1,"nodeId":1000001,"address":"127.0.0.1:9292","producerId":7,"producerEpoch":3,"claim":-1,"released":false,"instance":"i","logId":"l"}`)),
		Record{Key{Type: TypeOwnership}, &Ownership{1, 1000001, "127.0.0.1:9292", 7, 3, -1, false, "i", "l", 0, 0, 0}}},
	{"ownership with the number of partitions", "7d00", hex.EncodeToString([]byte(
		`{"format":1,"nodeId":1000001,"address":"127.0.0.1:9292","producerId":7,"producerEpoch":3,"claim":-1,"released":false,"instance":"i","logId":"l","partitions":50}`)),
		Record{Key{Type: TypeOwnership}, &Ownership{1, 1000001, "127.0.0.1:9292", 7, 3, -1, false, "i", "l", 50, 0, 0}}},
	{"ownership with its order", "7d00", hex.EncodeToString([]byte(
		`{"format":1,"nodeId":1000001,"address":"127.0.0.1:9292","producerId":7,"producerEpoch":3,"claim":-1,"released":false,"instance":"i","logId":"l","partitions":50,"order":12}`)),
		Record{Key{Type: TypeOwnership}, &Ownership{1, 1000001, "127.0.0.1:9292", 7, 3, -1, false, "i", "l", 50, 12, 0}}},
	{"refusal of a topology description", "7d020003617070", hex.EncodeToString([]byte(
		`{"format":1,"topologyEpoch":2,"plugin":"http","member":"m1","reason":"too \"large\"","timestamp":1000000}`)),
		Record{Key{Type: TypeDescriptionRefusal, Group: "app"}, &DescriptionRefusal{1, 2, "http", "m1", `too "large"`, 1000000}}},
	{"configuration of a group", "7d010003617070", hex.EncodeToString([]byte(
		`{"format":1,"configs":{"streams.num.standby.replicas":"1","streams.session.timeout.ms":"50000"}}`)),
		Record{Key{Type: TypeGroupConfig, Group: "app"}, &GroupConfig{1, map[string]string{"streams.session.timeout.ms": "50000", "streams.num.standby.replicas": "1"}}}},
	{"group on its way to the cluster", "00110003617070", "000000000003000000000000000101904e0103",
		Record{Key{Type: TypeGroup, Group: "app"}, &Group{
			Epoch: 3, MetadataHash: 1, Conversion: ConversionCopied,
			ValidatedTopologyEpoch: EpochNone, StoredDescriptionTopologyEpoch: EpochNone, FailedDescriptionTopologyEpoch: EpochNone,
		}}},
}

var offsetKey = Key{Type: TypeOffsetCommit, Group: "app", Topic: "in", Partition: 1}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestVectorsDecodeAndEncodeToTheSameBytes(t *testing.T) {
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			raw := Raw{Key: unhex(t, v.key)}
			if v.value != "" {
				raw.Value = unhex(t, v.value)
			}
			r, err := Decode(raw)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(r, v.record) {
				t.Errorf("decoded %+v\nwant    %+v", r, v.record)
			}
			if got := Encode(v.record); !reflect.DeepEqual(got, raw) {
				t.Errorf("encoded %x %x\nwant    %x %x", got.Key, got.Value, raw.Key, raw.Value)
			}
		})
	}
}

// TestOlderVersionsAreRead: what 4.4 no longer writes, laid out by hand from the field tables.
func TestOlderVersionsAreRead(t *testing.T) {
	offset := func(leaderEpoch int32, expire int64) *OffsetCommit {
		return &OffsetCommit{Offset: 42, LeaderEpoch: leaderEpoch, Metadata: "m", CommitTimestamp: 1000000, ExpireTimestamp: expire}
	}
	classic := func(stateTime int64, rebalance int32, instance *string) *ClassicGroup {
		return &ClassicGroup{
			ProtocolType: "consumer", Generation: 3, Protocol: ptr("range"), CurrentStateTimestamp: stateTime,
			Members: []ClassicMember{{MemberID: "m", GroupInstanceID: instance, ClientID: "c", ClientHost: "/h", RebalanceTimeout: rebalance, SessionTimeout: 5, Subscription: []byte{1}}},
		}
	}
	const head = "0008636f6e73756d6572" + "00000003" + "000572616e6765" + "ffff"
	for _, c := range []struct {
		name  string
		t     Type
		value string
		want  Value
	}{
		{"legacy offset", TypeLegacyOffsetCommit, "0000" + "000000000000002a" + "00016d" + "00000000000f4240", offset(-1, -1)},
		{"offset 0", TypeOffsetCommit, "0000" + "000000000000002a" + "00016d" + "00000000000f4240", offset(-1, -1)},
		{"offset 1 without retention", TypeOffsetCommit, "0001" + "000000000000002a" + "00016d" + "00000000000f4240" + "ffffffffffffffff", offset(-1, -1)},
		{"offset 2", TypeOffsetCommit, "0002" + "000000000000002a" + "00016d" + "00000000000f4240", offset(-1, -1)},
		{"offset 3", TypeOffsetCommit, "0003" + "000000000000002a" + "00000007" + "00016d" + "00000000000f4240", offset(7, -1)},
		{"classic 0", TypeClassicGroup, "0000" + head + "00000001" + "00016d" + "000163" + "00022f68" + "00000005" + "0000000101" + "00000000", classic(-1, -1, nil)},
		{"classic 1", TypeClassicGroup, "0001" + head + "00000001" + "00016d" + "000163" + "00022f68" + "00000009" + "00000005" + "0000000101" + "00000000", classic(-1, 9, nil)},
		{"classic 2", TypeClassicGroup, "0002" + head + "0000000000000007" + "00000001" + "00016d" + "000163" + "00022f68" + "00000009" + "00000005" + "0000000101" + "00000000", classic(7, 9, nil)},
		{"classic 3", TypeClassicGroup, "0003" + head + "0000000000000007" + "00000001" + "00016d" + "000169" + "000163" + "00022f68" + "00000009" + "00000005" + "0000000101" + "00000000", classic(7, 9, ptr("i"))},
		{"classic 4", TypeClassicGroup, "0004" + "09636f6e73756d6572" + "00000003" + "0672616e6765" + "00" + "0000000000000007" + "02" +
			"026d" + "0269" + "0263" + "032f68" + "00000009" + "00000005" + "0201" + "01" + "00" + "00", classic(7, 9, ptr("i"))},
		{"configs null", TypeGroup, "0000" + "00000003" + "0000000000000001" + "01" + "010100", vectors[5].record.Value},
		{"configs empty", TypeGroup, "0000" + "00000003" + "0000000000000001" + "01" + "010101", vectors[5].record.Value},
		{"unknown tags", TypeGroup, "0000" + "00000003" + "0000000000000001" + "02" + "0903aabbcc" + "8080040100", vectors[5].record.Value},
		{"unknown tags in nested structs", TypeTargetAssignmentMember, "0000" + "02" + "0230" + "0200000001" + "010900" + "01" + "01" + "00",
			&TargetAssignmentMember{Active: []TaskIDs{{SubtopologyID: "0", Partitions: []int32{1}}}}},
		{"unknown state", TypeCurrentMemberAssignment, "0000" + "00000002" + "00000001" + "09" + "010101010101" + "00",
			&CurrentMemberAssignment{MemberEpoch: 2, PreviousMemberEpoch: 1, State: MemberUnknown}},
		{"epochs missing, of another length, null, and on a standby", TypeCurrentMemberAssignment,
			"0000" + "00000002" + "00000001" + "01" +
				"02" + "0230" + "030000000000000001" + "00" +
				"02" + "0231" + "0200000000" + "01000502" + "00000009" + // standby, its epochs have no meaning
				"01" +
				"03" + "0232" + "030000000000000001" + "01000502" + "00000009" + "0233" + "0200000000" + "01000100" +
				"01" + "01" + "00",
			&CurrentMemberAssignment{
				MemberEpoch: 2, PreviousMemberEpoch: 1, State: MemberStable,
				Active:                  []TaskIDs{{"0", []int32{0, 1}, []int32{2, 2}}},
				Standby:                 []TaskIDs{{"1", []int32{0}, nil}},
				ActivePendingRevocation: []TaskIDs{{"2", []int32{0, 1}, []int32{2, 2}}, {"3", []int32{0}, []int32{2}}},
			}},
		{"configuration with a field more", TypeGroupConfig, hex.EncodeToString([]byte(`{"format":1,"by":"ann","configs":{"a":"b"}}`)), &GroupConfig{1, map[string]string{"a": "b"}}},
		{"ownership with a field more", TypeOwnership, hex.EncodeToString([]byte(`{"format":1,"nodeId":4,"zone":{"a":[]}}`)), &Ownership{Format: 1, NodeID: 4, Claim: -1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := DecodeValue(c.t, unhex(t, c.value))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
			// what was read in an old form is written in the new one and means the same
			again, err := DecodeValue(got.Type(), AppendValue(nil, got))
			if err != nil || !reflect.DeepEqual(again, c.want) {
				t.Errorf("written anew: %+v, %v", again, err)
			}
		})
	}
}

// TestLegacyOffsetKeepsItsType: a type-0 record is written as it was read, though nobody but a test does so.
func TestLegacyOffsetKeepsItsType(t *testing.T) {
	raw := Raw{unhex(t, "000000036170700002696e00000001"), unhex(t, "0000"+"000000000000002a"+"00016d"+"00000000000f4240")}
	r, err := Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	if got := Encode(r); !reflect.DeepEqual(got, raw) {
		t.Errorf("got %x %x", got.Key, got.Value)
	}
}

func TestBadKeys(t *testing.T) {
	for _, c := range []struct {
		name, key string
		want      error
	}{
		{"empty", "", ErrCorrupt},
		{"half a type", "00", ErrCorrupt},
		{"consumer group", "00030003617070", ErrUnknownType},
		{"consumer group 8", "00080003617070", ErrUnknownType},
		{"regular expression", "00100003617070", ErrUnknownType},
		{"share group", "000a0003617070", ErrUnknownType},
		{"share group 15", "000f0003617070", ErrUnknownType},
		{"unused 9", "0009", ErrUnknownType},
		{"former 18", "00120003617070", ErrUnknownType},
		{"24", "0018", ErrUnknownType},
		{"negative", "ffff", ErrUnknownType},
		{"no group", "0011", ErrCorrupt},
		{"null group", "0011ffff", ErrCorrupt},
		{"group too long", "0011000461707" + "0", ErrCorrupt},
		{"byte left over", "0011000361707000", ErrCorrupt},
		{"no member", "00130003617070", ErrCorrupt},
		{"no partition", "000100036170700002696e000000", ErrCorrupt},
		{"ownership with a group", "7d000003617070", ErrCorrupt},
	} {
		k, err := DecodeKey(unhex(t, c.key))
		want := Key{}
		if c.want == ErrUnknownType { // whoever skips it says what it was
			want.Type = Type(int16(binary.BigEndian.Uint16(unhex(t, c.key))))
		}
		if !errors.Is(err, c.want) || k != want {
			t.Errorf("%s: %+v, %v", c.name, k, err)
		}
	}
}

func TestBadValues(t *testing.T) {
	for _, c := range []struct {
		name  string
		t     Type
		value string
		want  error
	}{
		{"empty", TypeGroup, "", ErrCorrupt},
		{"half a version", TypeGroup, "00", ErrCorrupt},
		{"group of version 1", TypeGroup, "0001", ErrUnknownVersion},
		{"group of version -1", TypeGroup, "ffff", ErrUnknownVersion},
		{"offset of version 5", TypeOffsetCommit, "0005", ErrUnknownVersion},
		{"legacy offset of version 1", TypeLegacyOffsetCommit, "0001", ErrUnknownVersion},
		{"classic group of version 5", TypeClassicGroup, "0005", ErrUnknownVersion},
		{"a type that isn't ours", 3, "0000", ErrUnknownType},
		{"null client id", TypeMember, "0000" + "00" + "00" + "00" + "0101" + "00000000" + "00000000" + "01" + "ff" + "01" + "00", ErrCorrupt},
		{"string longer than Kafka reads", TypeOffsetCommit, "0004" + "000000000000002a" + "ffffffff" + "818002" + strings.Repeat("61", 1<<15) + "00000000000f4240" + "00", ErrCorrupt},
		{"list of two billion", TypeTopology, "0000" + "00000000" + "ffffffff07", ErrCorrupt},
		{"list of 4294967294", TypeTopology, "0000" + "00000000" + "ffffffff0f", ErrCorrupt},
		{"length of more than 32 bits", TypeTopology, "0000" + "00000000" + "ffffffffff01", ErrCorrupt},
		{"classic members, minus two", TypeClassicGroup, "0003" + "0000" + "00000000" + "ffff" + "ffff" + "0000000000000000" + "fffffffe", ErrCorrupt},
		{"classic members, two billion", TypeClassicGroup, "0003" + "0000" + "00000000" + "ffff" + "ffff" + "0000000000000000" + "7fffffff", ErrCorrupt},
		{"null list", TypeTargetAssignmentMember, "0000" + "00" + "01" + "01" + "00", ErrCorrupt},
		{"tagged field too long for its type", TypeTargetAssignment, "0000" + "00000002" + "01" + "0009" + "00000000000f424000", ErrCorrupt},
		{"tagged field too short for its type", TypeTargetAssignment, "0000" + "00000002" + "01" + "0004" + "00000000", ErrCorrupt},
		{"tagged field beyond the end", TypeGroup, "0000" + "00000003" + "0000000000000001" + "01" + "097f", ErrCorrupt},
		{"more tags than bytes", TypeGroup, "0000" + "00000003" + "0000000000000001" + "ffffffff0f", ErrCorrupt},
		{"no tag section", TypeGroup, "0000" + "00000003" + "0000000000000001", ErrCorrupt},
		{"configuration of format 2", TypeGroupConfig, hex.EncodeToString([]byte(`{"format":2,"configs":[]}`)), ErrUnknownVersion},
		{"configuration without format", TypeGroupConfig, hex.EncodeToString([]byte(`{"configs":{}}`)), ErrCorrupt},
		{"configuration of wrong types", TypeGroupConfig, hex.EncodeToString([]byte(`{"format":1,"configs":{"a":7}}`)), ErrCorrupt},
		{"ownership of format 2", TypeOwnership, hex.EncodeToString([]byte(`{"format":2,"nodeId":"now a string"}`)), ErrUnknownVersion},
		{"refusal of format 2", TypeDescriptionRefusal, hex.EncodeToString([]byte(`{"format":2}`)), ErrUnknownVersion},
		{"refusal that isn't an object", TypeDescriptionRefusal, "0000", ErrCorrupt},
		{"ownership without format", TypeOwnership, hex.EncodeToString([]byte(`{"nodeId":2}`)), ErrCorrupt},
		{"ownership that isn't an object", TypeOwnership, "0000", ErrCorrupt},
		{"ownership cut off", TypeOwnership, hex.EncodeToString([]byte(`{"format":1`)), ErrCorrupt},
		{"ownership of wrong types", TypeOwnership, hex.EncodeToString([]byte(`{"format":1,"nodeId":"x"}`)), ErrCorrupt},
		{"ownership with more behind", TypeOwnership, hex.EncodeToString([]byte(`{"format":1}{}`)), ErrCorrupt},
	} {
		v, err := DecodeValue(c.t, unhex(t, c.value))
		if !errors.Is(err, c.want) || v != nil {
			t.Errorf("%s: %+v, %v", c.name, v, err)
		}
	}
}

// TestEveryTruncationAndEveryTailIsCorrupt: a value is exactly its fields.
func TestEveryTruncationAndEveryTailIsCorrupt(t *testing.T) {
	for _, v := range vectors {
		whole := unhex(t, v.value)
		for n := range whole {
			if _, err := DecodeValue(v.record.Key.Type, whole[:n]); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s, %d of %d bytes: %v", v.name, n, len(whole), err)
			}
		}
		if len(whole) > 0 {
			if _, err := DecodeValue(v.record.Key.Type, append(bytes.Clone(whole), 0)); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s, a byte more: %v", v.name, err)
			}
		}
		key := unhex(t, v.key)
		for n := range key {
			if _, err := DecodeKey(key[:n]); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s, %d of %d bytes of the key: %v", v.name, n, len(key), err)
			}
		}
	}
}

func TestDecodedValuesDoNotAliasTheInput(t *testing.T) {
	classic := AppendValue(nil, &ClassicGroup{ProtocolType: "consumer", Members: []ClassicMember{{MemberID: "m", Subscription: []byte{1, 2}}}})
	key := AppendKey(nil, offsetKey)
	k, _ := DecodeKey(key)
	v, err := DecodeValue(TypeClassicGroup, classic)
	if err != nil {
		t.Fatal(err)
	}
	clear(classic)
	clear(key)
	if m := v.(*ClassicGroup).Members[0]; m.MemberID != "m" || m.Subscription[0] != 1 || k != offsetKey {
		t.Errorf("changed with the input: %+v %+v", m, k)
	}
}

func TestTryEncodeRefuses(t *testing.T) {
	long := strings.Repeat("x", StringBytesMax+1)
	for name, r := range map[string]Record{
		"long group":             {Key: Key{Type: TypeGroup, Group: long}},
		"long metadata":          {offsetKey, &OffsetCommit{Metadata: long, ExpireTimestamp: -1}},
		"long string in a list":  {Key{Type: TypeTopology}, &Topology{Subtopologies: []Subtopology{{SourceTopics: []string{long}}}}},
		"long string in a tag":   {Key{Type: TypeGroup}, &Group{LastAssignmentConfigs: []KeyValue{{long, ""}}}},
		"long instance id":       {Key{Type: TypeMember}, &Member{InstanceID: &long}},
		"another type's value":   {Key{Type: TypeGroup}, &Topology{}},
		"a type that isn't ours": {Key: Key{Type: 3}},
	} {
		raw, err := TryEncode(r)
		if !errors.Is(err, ErrUnencodable) || raw.Key != nil || raw.Value != nil {
			t.Errorf("%s: %v", name, err)
		}
		if r.Key.Type == 3 && !errors.Is(err, ErrUnknownType) {
			t.Errorf("%s: %v", name, err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: Encode let it pass", name)
				}
			}()
			Encode(r)
		}()
	}
	if raw, err := TryEncode(Record{Key{Type: TypeGroup, Group: long[1:]}, &Group{}}); err != nil || len(raw.Key) != 4+StringBytesMax {
		t.Errorf("the longest string: %v", err)
	}
}

func TestPartition(t *testing.T) {
	for _, c := range []struct {
		group     string
		hash      int32
		partition int32
	}{
		{"app", 96801, 1},
		{"my-streams-app", -1550722138, 38},
		{"polygenelubricants", -1 << 31, 0},
		{"", 0, 0},
		{"grüße", 98768023, 23},
		{"𝄞", 1772394, 44}, // surrogate pairs count as two
		{"a\U0010ffffb", 58790017, 17},
	} {
		if h := javaHash(c.group); h != c.hash {
			t.Errorf("hash of %q: %d, want %d", c.group, h, c.hash)
		}
		if p := Partition(c.group, 50); p != c.partition {
			t.Errorf("partition of %q: %d, want %d", c.group, p, c.partition)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, v := range vectors {
		raw := Raw{Key: unhex(b, v.key)}
		if v.value == "" {
			continue
		}
		raw.Value = unhex(b, v.value)
		b.Run(fmt.Sprintf("%v", v.name), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decode(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
