package eventlog

// Target and current assignments: types 20, 21 and 22, all version 0.
//
//	TargetAssignment (20)
//	  AssignmentEpoch      int32
//	  AssignmentTimestamp  int64   tag 0, default 0, ms
//
//	TargetAssignmentMember (21)
//	  ActiveTasks, StandbyTasks, WarmupTasks  []TaskIds
//
//	CurrentMemberAssignment (22)
//	  MemberEpoch, PreviousMemberEpoch  int32
//	  State                             int8
//	  ActiveTasks, StandbyTasks, WarmupTasks, then the same three pending revocation: []TaskIds
//
//	TaskIds
//	  SubtopologyId     string
//	  Partitions        []int32
//	  AssignmentEpochs  []int32  tag 0, nullable, default empty; type 22 only, parallel to Partitions in the active lists

// taskIDsBytesMin: empty string, empty list, empty tag section.
const taskIDsBytesMin = 3

func decodeTargetAssignment(r *reader) *TargetAssignment {
	v := &TargetAssignment{AssignmentEpoch: r.Int32()}
	r.tags(func(tag uint32, f *reader) bool {
		if tag != 0 {
			return false
		}
		v.AssignmentTimestamp = f.Int64()
		return true
	})
	return v
}

func (w *writer) targetAssignment(v *TargetAssignment) {
	w.int16(0)
	w.int32(v.AssignmentEpoch)
	if v.AssignmentTimestamp == 0 {
		w.noTags()
		return
	}
	w.uvarint(1)
	w.tag(0, func(f *writer) { f.int64(v.AssignmentTimestamp) })
}

func decodeTargetAssignmentMember(r *reader) *TargetAssignmentMember {
	v := &TargetAssignmentMember{Active: taskLists(r), Standby: taskLists(r), Warmup: taskLists(r)}
	r.tags(nil)
	return v
}

func (w *writer) targetAssignmentMember(v *TargetAssignmentMember) {
	w.int16(0)
	for _, tasks := range [][]TaskIDs{v.Active, v.Standby, v.Warmup} {
		w.taskLists(tasks, false)
	}
	w.noTags()
}

func decodeCurrentMemberAssignment(r *reader) *CurrentMemberAssignment {
	v := &CurrentMemberAssignment{}
	v.MemberEpoch = r.Int32()
	v.PreviousMemberEpoch = r.Int32()
	v.State = MemberState(r.Int8())
	if v.State < MemberStable || v.State > MemberUnreleasedTasks {
		v.State = MemberUnknown
	}
	v.Active = activeTaskLists(r, v.MemberEpoch)
	v.Standby = taskLists(r)
	v.Warmup = taskLists(r)
	v.ActivePendingRevocation = activeTaskLists(r, v.MemberEpoch)
	v.StandbyPendingRevocation = taskLists(r)
	v.WarmupPendingRevocation = taskLists(r)
	r.tags(nil)
	return v
}

func (w *writer) currentMemberAssignment(v *CurrentMemberAssignment) {
	w.int16(0)
	w.int32(v.MemberEpoch)
	w.int32(v.PreviousMemberEpoch)
	w.int8(int8(v.State))
	w.taskLists(v.Active, true)
	w.taskLists(v.Standby, false)
	w.taskLists(v.Warmup, false)
	w.taskLists(v.ActivePendingRevocation, true)
	w.taskLists(v.StandbyPendingRevocation, false)
	w.taskLists(v.WarmupPendingRevocation, false)
	w.noTags()
}

// taskLists reads []TaskIds of a list whose assignment epochs have no meaning.
func taskLists(r *reader) []TaskIDs {
	tasks := epochTaskLists(r)
	for i := range tasks {
		tasks[i].Epochs = nil
	}
	return tasks
}

// activeTaskLists reads []TaskIds and gives each partition an epoch: where the list of epochs is missing or of another
// length than that of the partitions, all take the member's (Kafka: TasksTupleWithEpochs).
func activeTaskLists(r *reader, memberEpoch int32) []TaskIDs {
	tasks := epochTaskLists(r)
	for i := range tasks {
		t := &tasks[i]
		if len(t.Epochs) == len(t.Partitions) {
			continue
		}
		t.Epochs = nil
		for range t.Partitions {
			t.Epochs = append(t.Epochs, memberEpoch)
		}
	}
	return tasks
}

func epochTaskLists(r *reader) []TaskIDs {
	return list(r, taskIDsBytesMin, func(r *reader) TaskIDs {
		t := TaskIDs{SubtopologyID: r.str(true), Partitions: list(r, 4, int32s)}
		r.tags(func(tag uint32, f *reader) bool {
			if tag != 0 {
				return false
			}
			t.Epochs = elements(f, f.countOrNull(4), int32s)
			return true
		})
		return t
	})
}

func (w *writer) taskLists(tasks []TaskIDs, epochs bool) {
	writeList(w, tasks, func(w *writer, t TaskIDs) {
		w.str(t.SubtopologyID, true)
		w.int32s(t.Partitions)
		if !epochs || len(t.Epochs) == 0 {
			w.noTags()
			return
		}
		w.uvarint(1)
		w.tag(0, func(f *writer) { f.int32s(t.Epochs) })
	})
}
