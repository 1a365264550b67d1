package streams

// AdmitCommit judges an offset commit to an existing group (StreamsGroup.validateOffsetCommit of Kafka 4.4). A nil
// function admits every partition; otherwise it must be asked for each, and one refusal fails the whole request. The
// instance id plays no part but in telling a transactional producer's commit from a member's. Errors are *Error.
func (g *Group) AdmitCommit(id string, epoch int32, instance *string, version int16, transactional bool) (func(topic string, partition int32) error, error) {
	const (
		noEpoch            = -1
		memberEpochVersion = 9 // OffsetCommit versions before know nothing of member epochs
	)
	if epoch < 0 && len(g.members) == 0 {
		return nil, nil // an administrator
	}
	if transactional && epoch == noEpoch && id == "" && instance == nil {
		return nil, nil // a producer that is not told of the group
	}
	m := g.members[id]
	switch {
	case m == nil:
		return nil, refuseUnknown(id, g.id)
	case !transactional && version < memberEpochVersion:
		return nil, refuse(codeUnsupportedVersion, "OffsetCommit version %d or above must be used by members using the streams group protocol.", memberEpochVersion)
	case epoch == m.epoch:
		return nil, nil
	case epoch > m.epoch || g.topology == nil:
		return nil, refuseStale(epoch, m.epoch)
	}
	return func(topic string, partition int32) error {
		x := task{sub: g.topology.reads[topic], partition: partition}
		_, reads := g.topology.reads[topic]
		since, holds := m.activeSince(x)
		if !reads || !holds || epoch < since {
			return refuseStale(epoch, m.epoch)
		}
		return nil
	}, nil
}

// activeSince is the assignment epoch of an active task that the member has or is giving up.
func (m *member) activeSince(x task) (epoch int32, holds bool) {
	for _, set := range [...]tasks{m.assigned.active, m.revoking.active} {
		if i, ok := set.find(x); ok {
			return set[i].epoch, true
		}
	}
	return 0, false
}

func refuseStale(got, known int32) *Error {
	return refuse(codeStaleMemberEpoch, "The received member epoch %d does not match the expected member epoch %d.", got, known)
}

// AdmitFetch judges an offset fetch from an existing group: without member and epoch it is an administrator's. Errors
// are *Error.
func (g *Group) AdmitFetch(id *string, epoch int32) error {
	if id == nil && epoch < 0 {
		return nil
	}
	name := ""
	if id != nil {
		name = *id
	}
	m := g.members[name]
	if m == nil {
		return refuseUnknown(name, g.id)
	}
	if epoch != m.epoch {
		return refuseStale(epoch, m.epoch)
	}
	return nil
}
