package kip1331

import "testing"

// solicitStories: which heartbeat answer asks for a description.
func solicitStories(t *testing.T, w *world) {
	t.Run("Versions", func(t *testing.T) { askedVersions(t, w) })
	t.Run("OneMember", func(t *testing.T) { askedOnce(t, w) })
	t.Run("StaleTopology", func(t *testing.T) { staleTopology(t, w) })
	t.Run("SecondLife", func(t *testing.T) { secondLife(t, w) })
	t.Run("Refused", func(t *testing.T) { refusedHeartbeats(t, w) })
	t.Run("AfterAPush", func(t *testing.T) { askedAfterPush(t, w) })
}

func wantAsked(t *testing.T, what string, got, want bool) {
	t.Helper()
	if got != want {
		t.Errorf("%s: asked %v, want %v", what, got, want)
	}
}

// askedVersions: a heartbeat of version 0 is not asked and does not use the window up.
func askedVersions(t *testing.T, w *world) {
	p, g := w.pair(t), w.group("versions")
	epoch := p.joined(0, g, "m")
	p.beat(heartbeat(0, g, "m", epoch))
	wantAsked(t, "first of version 1", p.beat(heartbeat(1, g, "m", epoch)).TopologyDescriptionRequired, true)
	wantAsked(t, "second of version 1", p.beat(heartbeat(1, g, "m", epoch)).TopologyDescriptionRequired, false)
	p.beat(heartbeat(0, g, "m", epoch))
}

// askedOnce: one member in a window, whoever comes first; a leave is not asked.
func askedOnce(t *testing.T, w *world) {
	p, g := w.pair(t), w.group("once")
	wantAsked(t, "join", p.beat(joining(1, g, "a", 0)).TopologyDescriptionRequired, true)
	wantAsked(t, "rejoin", p.beat(joining(1, g, "a", 0)).TopologyDescriptionRequired, false)
	other := w.group("leaver")
	p.joined(0, other, "m") // nobody was asked
	wantAsked(t, "leave", p.beat(heartbeat(1, other, "m", -1)).TopologyDescriptionRequired, false)
	wantAsked(t, "join after the leave", p.beat(joining(1, other, "m", 0)).TopologyDescriptionRequired, true)
}

// staleTopology: a member whose topology is behind the group's is not asked, and leaves the window to others.
func staleTopology(t *testing.T, w *world) {
	p, g := w.pair(t), w.group("stale")
	p.beat(joining(0, g, "new", 5))
	r := p.beat(joining(1, g, "old", 3))
	wantAsked(t, "stale member", r.TopologyDescriptionRequired, false)
	if len(r.Status) == 0 || r.Status[0].StatusCode != 0 {
		t.Errorf("the member is not told that it is stale: %+v", r.Status)
	}
	wantAsked(t, "other member", p.beat(joining(1, g, "new", 5)).TopologyDescriptionRequired, true)
	if code := p.push(pushing(g, "old", 5)); code != 0 { // any member may push the group's epoch
		t.Errorf("push by the stale member: %d", code)
	}
	if code := p.push(pushing(g, "old", 3)); code != 42 {
		t.Errorf("push of the stale epoch: %d", code)
	}
	if s := p.describe(g)[g]; s != 3 {
		t.Errorf("status %d", s)
	}
	check(t, p, g, nil, []string{"-1/-1", "-2/-1", "5/-1"})
}

// secondLife: a group that is made anew is asked at once if its description was deleted.
func secondLife(t *testing.T, w *world) {
	p, g := w.pair(t), w.group("deleted")
	p.joined(1, g, "m")
	p.push(pushing(g, "m", 0))
	p.leave(g, "m")
	p.delete(3, g)
	wantAsked(t, "after a deletion", p.beat(joining(1, g, "m", 0)).TopologyDescriptionRequired, true)
	check(t, p, g, nil, nil)
}

// refusedHeartbeats: an error asks for nothing.
func refusedHeartbeats(t *testing.T, w *world) {
	p, g := w.pair(t), w.group("fenced")
	epoch := p.joined(0, g, "m")
	p.beat(heartbeat(1, g, "m", epoch+1))
	p.beat(heartbeat(1, g, "other", epoch))
	p.beat(heartbeat(1, "nobody", "m", 1))
	p.beat(heartbeat(1, g, "m", -3))
	wantAsked(t, "after refusals", p.beat(heartbeat(1, g, "m", epoch)).TopologyDescriptionRequired, true)
}

// askedAfterPush: an outcome clears the window of its epoch, but a stored or refused epoch is not asked for; a failure for now is when the
// window is over.
func askedAfterPush(t *testing.T, w *world) {
	for _, behaviour := range []string{"ok", "permanent", "transient"} {
		p, g := w.pair(t), w.group("asked", "set:"+behaviour)
		epoch := p.joined(0, g, "m")
		p.push(pushing(g, "m", 0)) // unasked
		wantAsked(t, behaviour, p.beat(heartbeat(1, g, "m", epoch)).TopologyDescriptionRequired, false)
	}
}
