package streams

import "streamkeeper/eventlog"

// findMember finds the member a heartbeat is of, or makes it.
func (b *beat) findMember() error {
	g, req := b.g, b.req
	if !b.joining && !g.exists {
		return refuse(codeGroupIDNotFound, "Streams group %s not found.", g.id)
	}
	if b.joining {
		if err := b.checkSize(); err != nil {
			return err
		}
	}
	if req.InstanceID != nil {
		return b.findStatic()
	}
	b.was = g.members[req.MemberID]
	switch {
	case b.joining && b.was == nil:
		b.was = bareMember(req.MemberID)
		return nil
	case b.joining: // a rejoin keeps the member and its tasks
		return nil
	case b.was == nil:
		return refuseUnknown(req.MemberID, g.id)
	}
	return b.checkEpoch()
}

func refuseUnknown(member, group string) *Error {
	return refuse(codeUnknownMember, "Member %s is not a member of group %s.", member, group)
}

// checkSize refuses a further member of a full group. One that is in already, also as a static instance, may come back.
func (b *beat) checkSize() error {
	if b.req.InstanceID != nil {
		if _, known := b.g.instances[*b.req.InstanceID]; known {
			return nil
		}
	}
	if len(b.g.members) >= b.env.Config.MaxSize && b.g.members[b.req.MemberID] == nil {
		return refuse(codeGroupMaxSizeReached, "The streams group has reached its maximum capacity of %d members.", b.env.Config.MaxSize)
	}
	return nil
}

// checkEpoch fences a member whose epoch is not the one we know. The epoch before is accepted from a member that did not get the
// response which told it the new one: it owns nothing that it was not given.
func (b *beat) checkEpoch() error {
	got, known := b.req.MemberEpoch, b.was.epoch
	switch {
	case got > known:
		return refuse(codeFencedMemberEpoch, "The streams group member has a greater member epoch (%d) than the one known by the group coordinator (%d). "+
			"The member must abandon all its partitions and rejoin.", got, known)
	case got < known:
		if owned := ownedTasks(b.req); got == b.was.previousEpoch && owned != nil && owned.within(b.was.assigned) {
			return nil
		}
		return refuse(codeFencedMemberEpoch, "The streams group member has a smaller member epoch (%d) than the one known by the group coordinator (%d). "+
			"The member must abandon all its partitions and rejoin.", got, known)
	}
	return nil
}

// findStatic finds the member by its instance id. A new member id takes the place of one that left for a while.
func (b *beat) findStatic() error {
	g, req := b.g, b.req
	owner, known := g.instances[*req.InstanceID]
	if b.joining && !known {
		b.was = g.memberOrBare(req.MemberID)
		return nil
	}
	if !b.joining {
		m, err := g.staticMember(req.MemberID, *req.InstanceID)
		if err != nil {
			return err
		}
		b.was = m
		return b.checkEpoch()
	}
	old := g.members[owner]
	if old.epoch != epochStaticLeft {
		return refuse(codeUnreleasedInstanceID, "Static member %s with instance id %s cannot join the group because the instance id is owned by %s member.", req.MemberID, *req.InstanceID, owner)
	}
	b.replace(old)
	return nil
}

// staticMember finds the member that has the instance id; another member id is fenced.
func (g *Group) staticMember(id, instance string) (*member, error) {
	owner, known := g.instances[instance]
	if !known {
		return nil, refuse(codeUnknownMember, "Instance id %s is unknown.", instance)
	}
	if owner != id {
		return nil, refuse(codeFencedInstanceID, "Static member %s with instance id %s was fenced by member %s.", id, instance, owner)
	}
	return g.members[owner], nil
}

// replace gives the place of a static member, its description, tasks and target, to the requesting member id.
func (b *beat) replace(old *member) {
	m := *old
	m.id, m.epoch, m.previousEpoch = b.req.MemberID, epochJoin, epochJoin
	b.was, b.replaces = &m, old.id
	b.result.Records = append(b.result.Records, b.g.memberTombstones(old.id)...)
	b.record(eventlog.Key{Type: eventlog.TypeMember, Member: m.id}, m.meta)
	b.record(eventlog.Key{Type: eventlog.TypeTargetAssignmentMember, Member: m.id}, b.g.targets[old.id].targetRecord())
	b.record(eventlog.Key{Type: eventlog.TypeCurrentMemberAssignment, Member: m.id}, m.currentRecord())
}

// memberTombstones remove a member, in the order that Apply demands.
func (g *Group) memberTombstones(id string) []eventlog.Record {
	return []eventlog.Record{
		{Key: eventlog.Key{Type: eventlog.TypeCurrentMemberAssignment, Group: g.id, Member: id}},
		{Key: eventlog.Key{Type: eventlog.TypeTargetAssignmentMember, Group: g.id, Member: id}},
		{Key: eventlog.Key{Type: eventlog.TypeMember, Group: g.id, Member: id}},
	}
}
