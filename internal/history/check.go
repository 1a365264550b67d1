package history

import (
	"fmt"
	"strings"
	"time"
)

// Options say what is promised.
type Options struct {
	// Stale is by how much an answer that needed no write may lag behind: the lease, where clocks or the ownership group may lie (D3), else 0.
	// It never applies to fetches of offsets.
	Stale time.Duration
	// DecideWithin bounds the search for one register's order; a minute where 0. What is not decided by then is a violation.
	DecideWithin time.Duration
}

const decideWithin = time.Minute

// Violation is something that can't be.
type Violation struct {
	Rule  string // one of the Rule constants
	What  string
	Story []string // what happened around it, in order
}

// The rules.
const (
	RuleLinearizable = "committed offsets are one register for each partition"
	RuleUndecided    = "the history could not be judged"
	RuleMemberEpoch  = "a member's epoch does not go back"
	RuleGroupEpoch   = "a group's epoch does not go back"
	RuleOneOwner     = "a task has one owner"
	RuleInLog        = "what was acknowledged stands in the log and counts"
	RuleLogOrder     = "what was acknowledged first stands first"
	RuleAnswerer     = "who acknowledges a write owns the partition at that record"
	RuleLog          = "the log is well formed"
)

func (v Violation) String() string {
	return fmt.Sprintf("%s: %s\n\t%s", v.Rule, v.What, strings.Join(v.Story, "\n\t"))
}

// violationsMax bounds how many violations of one rule are told: one broken thing makes thousands.
const violationsMax = 10

// storyMax bounds a story's length: it is to be read.
const storyMax = 40

// report collects violations.
type report struct {
	all []Violation
	n   map[string]int
}

func (r *report) add(rule, what string, story []string) {
	if r.n == nil {
		r.n = map[string]int{}
	}
	if r.n[rule]++; r.n[rule] > violationsMax {
		return
	}
	if len(story) > storyMax {
		story = append([]string{fmt.Sprintf("(%d lines before)", len(story)-storyMax)}, story[len(story)-storyMax:]...)
	}
	r.all = append(r.all, Violation{rule, what, story})
}

// Check looks for what can't be in what clients saw. None found: nil.
func (h History) Check(o Options) []Violation {
	if o.DecideWithin == 0 {
		o.DecideWithin = decideWithin
	}
	r := &report{}
	h.checkOffsets(r, o)
	h.checkEpochs(r, o)
	h.checkTasks(r, o)
	return r.all
}

// story tells the ops that f picks, by their beginning.
func (h History) story(f func(Op) bool) []string {
	var lines []string
	for _, o := range h.Ops {
		if f(o) {
			lines = append(lines, o.String())
		}
	}
	return lines
}
