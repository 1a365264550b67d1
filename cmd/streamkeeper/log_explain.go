package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/internal/inspect"
	"streamkeeper/shard/streams"
)

// explainGroupsMax bounds the groups whose state log --explain keeps to tell what changes: some hundred megabytes.
const explainGroupsMax = 100_000

const explainHeader = "PARTITION  OFFSET     TIME                      GROUP AND WHAT HAPPENED"

// explainer tells the stories of groups from their records, which it is shown in the order of the log.
type explainer struct {
	w      io.Writer
	json   bool
	groups map[string]*explained
}

type explained struct {
	group     *streams.Group
	chronicle *streams.Chronicle
}

func newExplainer(w io.Writer, asJSON bool) *explainer {
	return &explainer{w: w, json: asJSON, groups: map[string]*explained{}}
}

// show tells the lines of one batch. An operation's records are written together and have one time, so where group or time changes, or
// the batch ends, an operation is over.
func (x *explainer) show(lines []inspect.Line) error {
	for i, l := range lines {
		if l.Newer != nil && !l.Void && l.Newer.Group != "" { // what follows may not fit together without it
			if err := x.tell(l, []streams.Event{{Kind: streams.EventState, Text: "(a record of a newer version can't be read: " + l.Err.Error() + ")"}}); err != nil {
				return err
			}
		}
		if l.Record == nil || l.Void {
			continue
		}
		switch l.Record.Key.Type {
		case eventlog.TypeOffsetCommit, eventlog.TypeLegacyOffsetCommit, eventlog.TypeClassicGroup, eventlog.TypeOwnership:
			continue // no part of a group's story
		}
		g, err := x.group(l.Group())
		if err != nil {
			return err
		}
		if err := x.tell(l, g.chronicle.Tell(*l.Record)); err != nil {
			return err
		}
		if err := g.group.Apply(*l.Record); err != nil {
			if err := x.tell(l, []streams.Event{{Kind: streams.EventState, Text: "(a record does not fit what was before it: " + err.Error() + ")"}}); err != nil {
				return err
			}
		}
		if over := i+1 == len(lines) || lines[i+1].Group() != l.Group() || lines[i+1].Entry.Timestamp != l.Entry.Timestamp; !over {
			continue
		}
		if err := x.tell(l, g.chronicle.Settled()); err != nil {
			return err
		}
		if !g.group.Exists() {
			delete(x.groups, l.Group())
		}
	}
	return nil
}

func (x *explainer) group(id string) (*explained, error) {
	if g := x.groups[id]; g != nil {
		return g, nil
	}
	if len(x.groups) >= explainGroupsMax {
		return nil, fmt.Errorf("--explain: the log has more than %d groups: name one with --group", explainGroupsMax)
	}
	g := &explained{group: streams.NewGroup(id)}
	g.chronicle = streams.NewChronicle(g.group)
	x.groups[id] = g
	return g, nil
}

func (x *explainer) tell(l inspect.Line, events []streams.Event) error {
	for _, e := range events {
		var err error
		if x.json {
			err = x.tellJSON(l, e)
		} else {
			_, err = fmt.Fprintf(x.w, "%-9d  %-9d  %-24s  %s  %s\n", l.Partition, l.Entry.Offset,
				time.UnixMilli(l.Entry.Timestamp).UTC().Format("2006-01-02T15:04:05.000Z"), l.Group(), e.Text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (x *explainer) tellJSON(l inspect.Line, e streams.Event) error {
	line := struct {
		Partition int32    `json:"partition"`
		Offset    int64    `json:"offset"`
		Timestamp int64    `json:"timestamp"`
		Group     string   `json:"group"`
		Kind      string   `json:"kind"`
		Member    string   `json:"member,omitempty"`
		Epoch     *int32   `json:"epoch,omitempty"`
		State     string   `json:"state,omitempty"`
		Because   []string `json:"because,omitempty"`
		Text      string   `json:"text"`
	}{
		Partition: l.Partition, Offset: l.Entry.Offset, Timestamp: l.Entry.Timestamp, Group: l.Group(), Kind: e.Kind.String(),
		Member: e.Member, Because: e.Because, Text: e.Text,
	}
	switch e.Kind {
	case streams.EventEpoch, streams.EventStep:
		line.Epoch = &e.Epoch
	case streams.EventTarget:
		if e.Member == "" {
			line.Epoch = &e.Epoch
		}
	case streams.EventState:
		line.Epoch, line.State = &e.Epoch, e.State.String()
	case streams.EventMember, streams.EventTopology, streams.EventDescription, streams.EventRemoved:
	}
	b, err := json.Marshal(line)
	if err != nil {
		return err
	}
	_, err = x.w.Write(append(b, '\n'))
	return err
}
