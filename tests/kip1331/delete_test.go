package kip1331

import (
	"fmt"
	"testing"
)

// deleteStories: DeleteGroups.
func deleteStories(t *testing.T, w *world) {
	t.Run("Outcomes", func(t *testing.T) { deleteOutcomes(t, w) })
	t.Run("OneRequest", func(t *testing.T) { deleteMany(t, w) })
	t.Run("WhatHasNoDescription", func(t *testing.T) { deleteUndescribed(t, w) })
	t.Run("WhileAPushIsUnderWay", func(t *testing.T) { deletedMeanwhile(t, w) })
	t.Run("WhileAMemberJoins", func(t *testing.T) { joinedMeanwhile(t, w) })
	t.Run("OverlappingAPush", func(t *testing.T) { overlapping(t, w) })
	t.Run("AfterAFailureTheGroupLivesOn", func(t *testing.T) { livesOn(t, w) })
}

// described makes an empty group with a description and a committed offset.
func (p *pair) described(group string) {
	p.t.Helper()
	epoch := p.joined(1, group, "m")
	p.push(pushing(group, "m", 0))
	if code := p.commit(group, "m", epoch, 7); code != 0 {
		p.fatal("commit: %d", code)
	}
	p.leave(group, "m")
}

// deleteOutcomes: where the plugin fails the group and its offsets stay, and the next attempt finds both.
func deleteOutcomes(t *testing.T, w *world) {
	p := w.pair(t)
	var groups []string
	for _, c := range []struct {
		behaviour string
		fails     bool
	}{
		{"ok", false}, {"twice", false}, {"null", false}, {"late", false}, {"transient", true}, {"permanent", true}, {"wrapped", true},
		{"error", true}, {"latefail", true}, {"bare", true}, {"mute", true}, {"large", true}, {"throw", true}, {"nil", true},
	} {
		for version := int16(0); version <= 3; version++ {
			if !c.fails && version < 3 {
				continue // a success looks alike in all
			}
			g := w.group("delete", "delete:"+c.behaviour+"*1")
			groups = append(groups, g)
			p.described(g)
			want := int16(0)
			if c.fails {
				want = -1
				if version >= 3 {
					want = 134
				}
			}
			if code := p.delete(version, g)[g]; code != want {
				t.Errorf("%s v%d: %d, want %d", g, version, code, want)
			}
			if offset := p.committed(g); c.fails != (offset == 7) {
				t.Errorf("%s: offset %d", g, offset)
			}
			if !c.fails {
				continue
			}
			if s := p.describe(g)[g]; s != 1 {
				t.Errorf("%s: status %d", g, s)
			}
			if code := p.delete(version, g)[g]; code != 0 { // the plugin has recovered
				t.Errorf("%s v%d again: %d", g, version, code)
			}
			p.describe(g)
			p.pluginCalls(g)
		}
	}
	logs := w.readLogs(t)
	for _, g := range groups {
		logs.same(p, g)
	}
}

// deleteMany: the groups of one request do not affect each other.
func deleteMany(t *testing.T, w *world) {
	for version := int16(0); version <= 3; version++ {
		p := w.pair(t)
		good, bad, busy, thrown := w.group("good"), w.group("bad", "delete:error"), w.group("busy"), w.group("thrown", "delete:throw")
		for _, g := range []string{good, bad, thrown} {
			p.described(g)
		}
		p.joined(1, busy, "m")
		p.push(pushing(busy, "m", 0))
		p.delete(version, good, bad, "nobody", busy, "", thrown, good)
		for _, g := range []string{good, bad, busy, thrown} {
			p.pluginCalls(g)
			p.committed(g)
		}
		if calls := p.pluginCalls(busy); len(calls) != 1 {
			t.Errorf("the plugin is asked to delete what has members: %q", calls)
		}
		p.describe(good, bad, busy, thrown)
		logs := w.readLogs(t)
		for _, g := range []string{good, bad, busy, thrown} {
			logs.same(p, g)
		}
	}
}

// deleteUndescribed: where nothing can be stored the plugin is not asked.
func deleteUndescribed(t *testing.T, w *world) {
	p := w.pair(t)
	never, refused := w.group("never", "delete:error"), w.group("refused", "set:permanent")
	for _, g := range []string{never, refused} {
		p.joined(1, g, "m")
	}
	p.push(pushing(refused, "m", 0))
	for _, g := range []string{never, refused} {
		p.leave(g, "m")
		if code := p.delete(3, g)[g]; code != 0 {
			t.Errorf("%s: %d", g, code)
		}
	}
	check(t, p, never, []string{}, []string{"-1/-1", "gone"})
	check(t, p, refused, []string{"set 0 permanent", "delete -1 ok"}, []string{"-1/-1", "-2/-1", "-2/0", "-1/0", "gone"})
}

// livesOn: a group whose deletion failed can be joined again, and is asked for its description when its window is over.
func livesOn(t *testing.T, w *world) {
	p, g := w.pair(t), w.group("survivor", "delete:error*1")
	p.described(g)
	p.delete(3, g)
	p.beat(joining(1, g, "n", 0))
	if code := p.push(pushing(g, "n", 0)); code != 0 {
		t.Errorf("push: %d", code)
	}
	if s := p.describe(g)[g]; s != 3 {
		t.Errorf("status %d", s)
	}
	p.leave(g, "n")
	p.delete(3, g)
	check(t, p, g, nil, []string{"-1/-1", "-2/-1", "0/-1", "-2/-1", "0/-1", "-2/-1", "-1/-1", "gone"})
	if got := fmt.Sprint(p.describe(g)[g]); got != "0" {
		t.Errorf("status of a group that is gone: %s", got)
	}
}

// deletedMeanwhile: a group is deleted while the plugin works at its description. The member hears that there is no such group; in Kafka what
// the plugin stores after all stays there, here it is deleted (docs/differences.md).
func deletedMeanwhile(t *testing.T, w *world) {
	p, q, g := w.pair(t), w.pair(t), w.group("deleted", "set:held")
	p.joined(1, g, "m")
	pushed := make(chan int16, 1)
	go func() {
		defer close(pushed)
		pushed <- p.push(pushing(g, "m", 0))
	}()
	awaitCalls(t, q, g, "set 0 held")
	q.leave(g, "m")
	if code := q.delete(3, g)[g]; code != 0 {
		t.Errorf("delete: %d", code)
	}
	q.free(g, "set")
	if code := <-pushed; code != 69 {
		t.Errorf("push: %d", code)
	}
	theirs, ours := callsIn(w.kafka.Log(1), g), callsIn(w.keeper.Output(), g)
	if fmt.Sprint(theirs) != "[set 0 held delete -1 ok]" || fmt.Sprint(ours) != "[set 0 held delete -1 ok delete -1 ok]" {
		t.Errorf("calls: Kafka %q, streamkeeper %q", theirs, ours)
	}
	w.readLogs(t).same(q, g)
}

// joinedMeanwhile: a member joins while the plugin deletes. The group stays, without its description, and is asked for a new one.
func joinedMeanwhile(t *testing.T, w *world) {
	p, q, g := w.pair(t), w.pair(t), w.group("joined", "delete:held")
	p.described(g)
	deleted := make(chan int16, 1)
	go func() {
		defer close(deleted)
		deleted <- q.delete(3, g)[g]
	}()
	awaitCalls(t, p, g, "set 0 ok", "delete -1 held")
	epoch := p.beat(joining(1, g, "n", 0)).MemberEpoch
	p.free(g, "delete")
	if code := <-deleted; code != 68 {
		t.Errorf("delete: %d", code)
	}
	if s := p.describe(g)[g]; s != 1 {
		t.Errorf("status %d", s)
	}
	wantAsked(t, "after the deletion", p.beat(heartbeat(1, g, "n", epoch)).TopologyDescriptionRequired, true)
	if offset := p.committed(g); offset != 7 {
		t.Errorf("offset %d", offset)
	}
	check(t, p, g, []string{"set 0 ok", "delete -1 held"}, []string{"-1/-1", "-2/-1", "0/-1", "-2/-1", "-1/-1"})
}

// overlapping: a push and a deletion are at the plugin at the same time, and nobody can know which of them it did last. Whichever ends last
// finds what the other left, and the group is uncertain.
func overlapping(t *testing.T, w *world) {
	for _, c := range []struct {
		first, last string
		states      string // from the marker of the deletion on
	}{
		{"set", "delete", "[-1/-1 -2/-1 0/-1 -2/-1]"},
		{"delete", "set", "[-1/-1 -2/-1 -1/-1 -2/-1]"},
	} {
		p, q, r, g := w.pair(t), w.pair(t), w.pair(t), w.group("overlap", "set:held*1", "delete:held*1")
		p.joined(1, g, "m")
		pushed, deleted := make(chan int16, 1), make(chan int16, 1)
		go func() {
			defer close(pushed)
			pushed <- p.push(pushing(g, "m", 0))
		}()
		awaitCalls(t, r, g, "set 0 held")
		r.leave(g, "m")
		go func() {
			defer close(deleted)
			deleted <- q.delete(3, g)[g]
		}()
		awaitCalls(t, r, g, "set 0 held", "delete -1 held")
		epoch := r.beat(joining(1, g, "n", 0)).MemberEpoch // so that the group stays
		ended := map[string]func(){
			"set": func() {
				r.free(g, "set")
				if code := <-pushed; code != 0 {
					t.Errorf("push: %d", code)
				}
			},
			"delete": func() {
				r.free(g, "delete")
				if code := <-deleted; code != 68 {
					t.Errorf("delete: %d", code)
				}
			},
		}
		ended[c.first]()
		r.describe(g)
		ended[c.last]()
		if s := r.describe(g)[g]; s != 1 {
			t.Errorf("%s, then %s: status %d", c.first, c.last, s)
		}
		if got := fmt.Sprint(epochs(w.readLogs(t).same(r, g))); got != c.states {
			t.Errorf("%s, then %s: epochs %s, want %s", c.first, c.last, got, c.states)
		}
		r.beat(heartbeat(1, g, "n", epoch)) // is asked, or waits, alike
		if code := r.push(pushing(g, "n", 0)); code != 0 {
			t.Errorf("push afterwards: %d", code)
		}
		if s := r.describe(g)[g]; s != 3 {
			t.Errorf("status afterwards: %d", s)
		}
		r.pluginCalls(g)
	}
}
