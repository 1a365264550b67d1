package history

import (
	"fmt"
	"time"
)

// Kind is what a request is about.
type Kind int8

// The kinds.
const (
	Commit    Kind = iota + 1 // of one offset
	Fetch                     // of one committed offset
	Remove                    // of one committed offset, by itself or with its group
	Heartbeat                 // of a member; also joins and leaves
	Describe                  // of a group: its epoch
)

func (k Kind) String() string {
	switch k {
	case Commit:
		return "commit"
	case Fetch:
		return "fetch"
	case Remove:
		return "remove"
	case Heartbeat:
		return "heartbeat"
	case Describe:
		return "describe"
	}
	return fmt.Sprintf("kind %d", int8(k))
}

// None is the offset of a partition for which nothing is committed.
const None int64 = -1

// NodeUnknown is the node of an answer of which it isn't known who gave it.
const NodeUnknown int32 = -1

// Outcome is what became of a request.
type Outcome int8

// The outcomes. Pending are requests whose client was stopped before it knew; they are taken as Unknown.
const (
	Pending Outcome = iota
	Done            // answered without an error
	Refused         // answered with an error: no effect
	Unknown         // no answer: it may have an effect, now or later
)

func (o Outcome) String() string { return [...]string{"pending", "done", "refused", "unknown"}[o] }

// Op is one request. A request about several partitions is one Op for each.
type Op struct {
	Kind   Kind
	Client string // who asked, for the story
	Node   int32  // who answered, or NodeUnknown
	Group  string

	// Of Commit, Fetch, Remove.
	Topic     string
	Partition int32
	Offset    int64 // committed, or as answered; None

	// Of Heartbeat, and of a Commit by a member.
	Member string
	// Sent is the member epoch in the request: 0 joins, -1 and -2 leave.
	Sent int32
	// Epoch is the member epoch answered, of Describe the group epoch.
	Epoch int32

	Begin, End time.Duration // since the recorder's clock began
	Outcome    Outcome
	Why        string // the error of a Refused or Unknown
}

// key names a register.
type key struct {
	group, topic string
	partition    int32
}

func (k key) String() string { return fmt.Sprintf("%s %s-%d", k.group, k.topic, k.partition) }

func (o Op) key() key { return key{o.Group, o.Topic, o.Partition} }

func offsetText(offset int64) string {
	if offset == None {
		return "none"
	}
	return fmt.Sprint(offset)
}

// String tells the op in one line.
func (o Op) String() string {
	what := ""
	switch o.Kind {
	case Commit:
		what = fmt.Sprintf("commit %s of %s-%d", offsetText(o.Offset), o.Topic, o.Partition)
	case Fetch:
		what = fmt.Sprintf("fetch of %s-%d", o.Topic, o.Partition)
		if o.Outcome == Done {
			what += " = " + offsetText(o.Offset)
		}
	case Remove:
		what = fmt.Sprintf("remove %s-%d", o.Topic, o.Partition)
	case Heartbeat:
		what = fmt.Sprintf("heartbeat of %s at epoch %d", o.Member, o.Sent)
		if o.Outcome == Done {
			what += fmt.Sprintf(" = %d", o.Epoch)
		}
	case Describe:
		what = "describe"
		if o.Outcome == Done {
			what += fmt.Sprintf(" = epoch %d", o.Epoch)
		}
	}
	end := "…"
	if o.Outcome == Done || o.Outcome == Refused {
		end = o.End.String()
	}
	s := fmt.Sprintf("%s–%s %s: %s, %s", o.Begin, end, o.Group, what, o.Outcome)
	if o.Node != NodeUnknown {
		s += fmt.Sprintf(" by node %d", o.Node)
	}
	if o.Client != "" {
		s += " to " + o.Client
	}
	if o.Why != "" {
		s += " (" + o.Why + ")"
	}
	return s
}
