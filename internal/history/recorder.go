package history

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Recorder takes what clients do. Its methods may be called from any goroutine.
type Recorder struct {
	now func() time.Duration

	mu    sync.Mutex
	ops   []*Op
	holds []*Hold
}

// NewRecorder returns an empty one. now is a clock that never goes back, such as time.Since of the start; two calls one after the other may
// return the same.
func NewRecorder(now func() time.Duration) *Recorder { return &Recorder{now: now} }

// Request is an Op that has begun.
type Request struct {
	r  *Recorder
	op *Op
}

// Begin records that a request is about to be sent.
func (r *Recorder) Begin(op Op) *Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	op.Begin, op.Outcome, op.End = r.now(), Pending, 0
	if op.Node == 0 {
		op.Node = NodeUnknown
	}
	p := &Request{r, &op}
	r.ops = append(r.ops, p.op)
	return p
}

func (p *Request) end(o Outcome, set func(*Op)) {
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	if p.op.Outcome != Pending {
		panic("history: a request ended twice: " + p.op.String())
	}
	p.op.End, p.op.Outcome = p.r.now(), o
	if set != nil {
		set(p.op)
	}
}

// Done records the answer, once it is here. set fills in what it says, and may be nil.
func (p *Request) Done(set func(*Op)) { p.end(Done, set) }

// Refused records an answer that says that nothing was done.
func (p *Request) Refused(why error) { p.end(Refused, func(o *Op) { o.Why = why.Error() }) }

// Unknown records that there is no answer and won't be one.
func (p *Request) Unknown(why error) { p.end(Unknown, func(o *Op) { o.Why = why.Error() }) }

// Failed records an answer that is an error: that nothing was done, unless the error is one with which a write can end that was fenced, or
// whose outcome the coordinator does not know, and that may be in the log.
func (p *Request) Failed(err error) {
	var refusal *kerr.Error
	if errors.Is(err, kerr.UnknownServerError) || errors.As(err, &refusal) && refusal.Retriable {
		p.Unknown(err)
		return
	}
	p.Refused(err)
}

// Hold is the time during which a member works on an active task.
type Hold struct {
	Group, Task, Member string
	From, To            time.Duration
	open                bool
	r                   *Recorder
}

// Take records that a member begins with an active task.
func (r *Recorder) Take(group, task, member string) *Hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &Hold{Group: group, Task: task, Member: member, From: r.now(), open: true, r: r}
	r.holds = append(r.holds, h)
	return h
}

// Drop records that it has stopped.
func (h *Hold) Drop() {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	if h.open {
		h.To, h.open = h.r.now(), false
	}
}

// History is what was recorded up to a moment.
type History struct {
	Ops   []Op // by Begin
	Holds []Hold
}

// History copies what was recorded so far.
func (r *Recorder) History() History {
	r.mu.Lock()
	defer r.mu.Unlock()
	var h History
	for _, o := range r.ops {
		h.Ops = append(h.Ops, *o)
	}
	for _, o := range r.holds {
		c := *o
		if c.open {
			c.To = r.now()
		}
		h.Holds = append(h.Holds, c)
	}
	slices.SortStableFunc(h.Ops, func(a, b Op) int { return cmp.Compare(a.Begin, b.Begin) })
	return h
}
