package shard

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"streamkeeper/eventlog"
	"streamkeeper/shard/streams"
)

// waitedMax bounds the members that a rebalance names as those it waited for: a span and a log line are read by people.
const waitedMax = 100

// targetsMax is with how many targets in one operation they are told one by one. A thousand members are a thousand of them, whose words
// would cost the shard's loop as much as the targets themselves, and a span keeps 128 events.
const targetsMax = 32

// rebalance is a group on its way from a new group epoch to a state in which every member has what it is to have, or nothing can be assigned. It is a span of its own, which
// links to the requests that moved it. What is told rests on records that may not be durable yet, like all of a shard's memory.
type rebalance struct {
	span   trace.Span
	begun  time.Time
	first  int32 // epoch
	epochs int
	waited map[string]struct{} // members that were not there yet at some moment
	last   string              // the member that moved last
}

// chronicle is what an operation's records will tell; nil where they are of no interest: offset commits, repairs.
func (s *Shard) chronicle(t *turn, eff effect) *streams.Chronicle {
	if eff.quiet || !slices.ContainsFunc(eff.records, func(r eventlog.Record) bool { return r.Key.Type != eventlog.TypeOffsetCommit }) {
		return nil
	}
	c := streams.NewChronicle(t.g.Group)
	if eff.why != "" {
		c.Gone = eff.why
	}
	targets := 0
	for _, r := range eff.records {
		if r.Key.Type == eventlog.TypeTargetAssignmentMember {
			targets++
		}
	}
	c.Brief = targets > targetsMax
	return c
}

// watch tells what the applied records of an operation meant: as log lines, and as the span of the rebalance.
func (s *Shard) watch(ctx context.Context, t *turn, records []eventlog.Record, events []streams.Event) {
	g := t.g
	for _, r := range records {
		if r.Key.Type == eventlog.TypeGroupConfig {
			s.log.Info("group configured", "group", g.ID(), "configs", fmt.Sprint(configsOf(g.Config())))
		}
	}
	for _, e := range events {
		switch e.Kind {
		case streams.EventEpoch:
			s.log.Info("group epoch", "group", g.ID(), "epoch", e.Epoch, "because", strings.Join(e.Because, "; "), "state", g.State().String())
			s.rebalancing(ctx, g, e)
			continue
		case streams.EventRemoved:
			s.log.Info("group removed", "group", g.ID())
			s.rebalanced(g, "the group was removed", nil)
		case streams.EventMember:
			if _, there := g.MemberEpoch(e.Member); !there {
				s.log.Info("member removed", "group", g.ID(), "member", e.Member, "because", strings.TrimPrefix(e.Text, "member "+e.Member+" "))
			}
		}
		s.happens(g, e)
	}
	link(ctx, g)
	s.settled(g)
}

// rebalancing begins a rebalance, or notes that one begins anew.
func (s *Shard) rebalancing(ctx context.Context, g *group, e streams.Event) {
	because := strings.Join(e.Because, "; ")
	if g.rebalance == nil {
		g.rebalance = s.newRebalance(ctx, g, e.Epoch, because)
		return
	}
	r := g.rebalance
	r.epochs++
	r.span.AddEvent("group epoch", trace.WithAttributes(attribute.Int("group.epoch", int(e.Epoch)), attribute.String("because", because)))
}

func (s *Shard) newRebalance(ctx context.Context, g *group, epoch int32, because string) *rebalance {
	r := &rebalance{begun: time.Now(), first: epoch, epochs: 1, waited: map[string]struct{}{}}
	_, r.span = s.host.tracer.Start(context.WithoutCancel(ctx), "rebalance", trace.WithNewRoot(), trace.WithAttributes(
		attribute.String("group", g.ID()), attribute.Int("partition", int(s.partition)),
		attribute.Int("group.epoch.first", int(epoch)), attribute.String("because", because)))
	return r
}

// happens notes a step of the rebalance that is under way.
func (s *Shard) happens(g *group, e streams.Event) {
	r := g.rebalance
	if r == nil {
		return
	}
	if e.Kind == streams.EventStep {
		r.last = e.Member
	}
	if r.span.IsRecording() {
		attributes := []attribute.KeyValue{}
		if e.Member != "" {
			attributes = append(attributes, attribute.String("member", e.Member))
		}
		r.span.AddEvent(e.Text, trace.WithAttributes(attributes...))
	}
}

// link ties the request to the rebalance that it moved.
func link(ctx context.Context, g *group) {
	if r, sc := g.rebalance, trace.SpanContextFromContext(ctx); r != nil && sc.IsValid() && r.span.IsRecording() {
		r.span.AddLink(trace.Link{SpanContext: sc})
	}
}

// settled looks whether the rebalance has come to its end, and for whom it waits where it has not.
func (s *Shard) settled(g *group) {
	r := g.rebalance
	if r == nil {
		return
	}
	switch g.State() {
	case streams.StateStable:
		s.rebalanced(g, "stable", nil)
	case streams.StateEmpty:
		s.rebalanced(g, "empty", nil)
	case streams.StateNotReady: // it may stay so for days
		s.rebalanced(g, "not ready", nil)
	case streams.StateReconciling:
		if len(r.waited) >= waitedMax {
			return
		}
		for _, id := range g.Unreconciled() {
			if len(r.waited) < waitedMax {
				r.waited[id] = struct{}{}
			}
		}
	case streams.StateAssigning:
	}
}

// rebalanced ends the rebalance of a group, if there is one: with an outcome, and an error where it was broken off.
func (s *Shard) rebalanced(g *group, outcome string, err error) {
	r := g.rebalance
	if r == nil {
		return
	}
	g.rebalance = nil
	waited := slices.Sorted(maps.Keys(r.waited))
	took := time.Since(r.begun)
	r.span.SetAttributes(
		attribute.String("outcome", outcome), attribute.Int("group.epoch", int(g.Epoch())), attribute.Int("group.epochs", r.epochs),
		attribute.Int("members", g.Members()), attribute.StringSlice("members.waited.for", waited), attribute.String("member.last", r.last),
		attribute.Int64("duration.ms", took.Milliseconds()))
	if err != nil {
		r.span.SetStatus(codes.Error, err.Error())
	}
	r.span.End()
	if s.log.Enabled(context.Background(), slog.LevelInfo) && err == nil {
		s.log.Info("rebalance ended", "group", g.ID(), "outcome", outcome, "epoch", g.Epoch(), "epochs", r.epochs, "members", g.Members(),
			"waited_for", waited, "duration", took.Round(time.Millisecond))
	}
}

// resume begins the rebalance of a group that was in the midst of one when its shard was taken over.
func (s *Shard) resume(g *group) {
	switch g.State() {
	case streams.StateAssigning, streams.StateReconciling:
		g.rebalance = s.newRebalance(context.Background(), g, g.Epoch(), "it was under way when the shard was taken over")
		s.settled(g)
	case streams.StateStable, streams.StateEmpty, streams.StateNotReady:
	}
}

// breakOff ends the rebalances of all groups: the shard is served here no longer.
func (s *Shard) breakOff(err error) {
	for _, g := range s.groups {
		s.rebalanced(g, "the shard is not served here any more", err)
	}
}
