package streams

import "streamkeeper/eventlog"

// reconciliation is one step of one member towards its target (CurrentAssignmentBuilder of Kafka 4.4): a member first
// gives up what it must, and is given what it may only once nobody else holds it.
type reconciliation struct {
	g      *Group
	m      *member    // as updated by this request
	epoch  int32      // of the target
	target assignment // without epochs
	owned  *assignment
}

// next returns the member after this step; it is m itself where nothing is to be done.
func (r reconciliation) next() (*member, error) {
	switch r.m.state {
	case eventlog.MemberStable:
		if r.m.epoch == r.epoch {
			return r.m, nil
		}
		return r.step(r.m.epoch), nil
	case eventlog.MemberUnrevokedTasks:
		if r.holdsAnyOf(r.m.revoking) {
			return r.m, nil
		}
		return r.step(r.m.epoch + 1), nil
	case eventlog.MemberUnreleasedTasks:
		return r.step(r.m.epoch), nil
	}
	if r.owned == nil || !r.owned.empty() {
		return nil, refuse(codeFencedMemberEpoch, "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.")
	}
	return r.step(r.epoch), nil
}

// holdsAnyOf says that the member still has, or may still have, some of the tasks.
func (r reconciliation) holdsAnyOf(a assignment) bool {
	return r.owned == nil || r.owned.overlaps(a)
}

// step computes what the member keeps, gives up and gets. base is the epoch of a member that has to give tasks up.
func (r reconciliation) step(base int32) *member {
	has := r.m.assigned
	keep := assignment{intersect(has.active, r.target.active), intersect(has.standby, r.target.standby), intersect(has.warmup, r.target.warmup)}
	revoke := assignment{minus(has.active, keep.active), minus(has.standby, keep.standby), minus(has.warmup, keep.warmup)}
	add, withheld := r.additions(keep)

	r.changeRoles(has, &keep, &revoke, &add)
	revoking := !revoke.empty() && r.holdsAnyOf(revoke)
	r.keepUntilActive(has.standby, &keep.standby, add.active, revoking)
	r.keepUntilActive(has.warmup, &keep.warmup, add.active, revoking)

	n := *r.m
	n.previousEpoch = r.m.epoch
	n.assigned, n.revoking = keep, assignment{}
	if revoking {
		n.epoch, n.state, n.revoking = base, eventlog.MemberUnrevokedTasks, revoke
		return &n
	}
	n.epoch, n.state = r.epoch, eventlog.MemberStable
	if withheld {
		n.state = eventlog.MemberUnreleasedTasks
	}
	n.assigned = assignment{union(keep.active, add.active), union(keep.standby, add.standby), union(keep.warmup, add.warmup)}
	return &n
}

// additions are the tasks of the target that the member lacks and may have now; withheld says that others are held
// by somebody who has not given them up yet.
func (r reconciliation) additions(keep assignment) (add assignment, withheld bool) {
	pick := func(target, keep tasks, unreleased func(task) bool) (add tasks) {
		for _, x := range minus(target, keep) {
			if unreleased(x) {
				withheld = true
			} else {
				add = append(add, x)
			}
		}
		return add
	}
	add.active = pick(r.target.active, keep.active, r.unreleasedActive).withEpoch(r.epoch)
	add.standby = pick(r.target.standby, keep.standby, r.unreleasedStandby)
	add.warmup = pick(r.target.warmup, keep.warmup, r.unreleasedWarmup)
	return add, withheld
}

// A task may run active once in the group and exist once in a process, in whatever role. Within a process this
// member itself may change the role it has a task in; that is what "another" is about.

func (r reconciliation) unreleasedActive(x task) bool {
	return r.g.anywhere(roleActive, x) || r.another(roleStandby, x, r.m.assigned.standby) || r.another(roleWarmup, x, r.m.assigned.warmup)
}

func (r reconciliation) unreleasedStandby(x task) bool {
	return r.another(roleActive, x, r.m.assigned.active) || r.process(roleStandby, x) || r.another(roleWarmup, x, r.m.assigned.warmup)
}

func (r reconciliation) unreleasedWarmup(x task) bool {
	return r.process(roleActive, x) || r.another(roleStandby, x, r.m.assigned.standby) || r.process(roleWarmup, x)
}

// process says that a member of this process holds the task in the role.
func (r reconciliation) process(in role, x task) bool {
	return r.g.inProcess(in, x, r.m.meta.ProcessID)
}

// another says that a member of this process other than this one does.
func (r reconciliation) another(in role, x task, mine tasks) bool {
	return r.process(in, x) && !mine.has(x)
}

// changeRoles grants at once what a member already has in another role: the state is on its disk. An active task
// that becomes a standby is still given up as active; a standby or warmup that becomes active is not given up at all.
func (r reconciliation) changeRoles(has assignment, keep, revoke, add *assignment) {
	grant := func(held tasks, add, keep, revoke *tasks) {
		moved := intersect(*add, held)
		*add, *keep = minus(*add, moved), union(*keep, moved)
		if revoke != nil {
			*revoke = minus(*revoke, moved)
		}
	}
	grant(has.active, &add.standby, &keep.standby, nil)
	grant(has.standby, &add.warmup, &keep.warmup, &revoke.standby)
	grant(has.warmup, &add.standby, &keep.standby, &revoke.warmup)
	revoke.standby = minus(revoke.standby, r.target.active)
	revoke.warmup = minus(revoke.warmup, r.target.active)
}

// keepUntilActive keeps a standby or warmup that is to become active in its old role until the active task is granted,
// which is in this step unless the member has to give other tasks up first.
func (r reconciliation) keepUntilActive(held tasks, keep *tasks, granted tasks, revoking bool) {
	waiting := intersect(held, r.target.active)
	if !revoking {
		waiting = minus(waiting, granted)
	}
	*keep = union(*keep, waiting)
}
