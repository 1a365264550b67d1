package eventlog

// Member, type 19, version 0.
//
//	InstanceId, RackId    nullable strings
//	ClientId, ClientHost  strings; the host in Java's form, "/10.0.0.1"
//	RebalanceTimeoutMs    int32
//	TopologyEpoch         int32
//	ProcessId             string
//	UserEndpoint          nullable struct: int8 (-1 null, 1 present), Host string, Port uint16
//	ClientTags            [](Key, Value string)

func decodeMember(r *reader) *Member {
	v := &Member{}
	v.InstanceID = r.nstr(true)
	v.RackID = r.nstr(true)
	v.ClientID = r.str(true)
	v.ClientHost = r.str(true)
	v.RebalanceTimeoutMs = r.Int32()
	v.TopologyEpoch = r.Int32()
	v.ProcessID = r.str(true)
	if r.Int8() >= 0 && !r.bad() {
		v.UserEndpoint = &Endpoint{Host: r.str(true), Port: r.Uint16()}
		r.tags(nil)
	}
	v.ClientTags = list(r, keyValueBytesMin, keyValue)
	r.tags(nil)
	return v
}

func (w *writer) member(v *Member) {
	w.int16(0)
	w.nstr(v.InstanceID, true)
	w.nstr(v.RackID, true)
	w.str(v.ClientID, true)
	w.str(v.ClientHost, true)
	w.int32(v.RebalanceTimeoutMs)
	w.int32(v.TopologyEpoch)
	w.str(v.ProcessID, true)
	if e := v.UserEndpoint; e == nil {
		w.int8(-1)
	} else {
		w.int8(1)
		w.str(e.Host, true)
		w.int16(int16(e.Port))
		w.noTags()
	}
	w.keyValues(v.ClientTags)
	w.noTags()
}
