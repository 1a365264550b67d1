package eventlog

import "github.com/twmb/franz-go/pkg/kbin"

// ClassicGroup, type 2; flexible from version 4.
//
//	protocolType           string
//	generation             int32
//	protocol, leader       nullable strings
//	currentStateTimestamp  int64   from version 2, default -1, ms
//	members                array of
//	  memberId             string
//	  groupInstanceId      nullable string, from version 3
//	  clientId, clientHost strings
//	  rebalanceTimeout     int32   from version 1, default -1, ms
//	  sessionTimeout       int32   ms
//	  subscription         bytes
//	  assignment           bytes

const classicVersionWritten = 3

// classicMemberBytesMin is the smallest member, that of version 4: seven lengths or tag counts of a byte, two int32.
const classicMemberBytesMin = 15

func decodeClassicGroup(r *reader, version int16) *ClassicGroup {
	flexible := version >= 4
	v := &ClassicGroup{CurrentStateTimestamp: -1}
	v.ProtocolType = r.str(flexible)
	v.Generation = r.Int32()
	v.Protocol = r.nstr(flexible)
	v.Leader = r.nstr(flexible)
	if version >= 2 {
		v.CurrentStateTimestamp = r.Int64()
	}
	v.Members = elements(r, r.count(flexible, classicMemberBytesMin), func(r *reader) ClassicMember {
		m := ClassicMember{RebalanceTimeout: -1}
		m.MemberID = r.str(flexible)
		if version >= 3 {
			m.GroupInstanceID = r.nstr(flexible)
		}
		m.ClientID = r.str(flexible)
		m.ClientHost = r.str(flexible)
		if version >= 1 {
			m.RebalanceTimeout = r.Int32()
		}
		m.SessionTimeout = r.Int32()
		m.Subscription = r.blob(flexible)
		m.Assignment = r.blob(flexible)
		if flexible {
			r.tags(nil)
		}
		return m
	})
	if flexible {
		r.tags(nil)
	}
	return v
}

func (w *writer) classicGroup(v *ClassicGroup) {
	w.int16(classicVersionWritten)
	w.str(v.ProtocolType, false)
	w.int32(v.Generation)
	w.nstr(v.Protocol, false)
	w.nstr(v.Leader, false)
	w.int64(v.CurrentStateTimestamp)
	w.int32(int32(len(v.Members)))
	for i := range v.Members {
		m := &v.Members[i]
		w.str(m.MemberID, false)
		w.nstr(m.GroupInstanceID, false)
		w.str(m.ClientID, false)
		w.str(m.ClientHost, false)
		w.int32(m.RebalanceTimeout)
		w.int32(m.SessionTimeout)
		w.b = kbin.AppendBytes(w.b, m.Subscription)
		w.b = kbin.AppendBytes(w.b, m.Assignment)
	}
}
