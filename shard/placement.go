package shard

import (
	"cmp"
	"slices"
)

// seat is a member of the ownership group as the placement of partitions sees it.
type seat struct {
	owns     []int32        // what it says it owns
	round    int32          // the generation of the group in which that was so; the latest word counts
	declines map[int32]bool // what it can't serve
}

// place decides who gets which partition, 0 to n-1, and returns them per seat, ascending. A partition goes to nobody who declines it, as long as there is
// one who does not; what all decline stays where it is. Beyond that partitions are shared evenly, and as few as possible move.
func place(n int32, seats []seat) [][]int32 {
	if len(seats) == 0 {
		return nil
	}
	p := placing{seats: seats, at: make([]int, n), load: make([]int, len(seats))}
	p.keep()
	p.fill()
	for p.even() {
	}
	out := make([][]int32, len(seats))
	for q, s := range p.at {
		out[s] = append(out[s], int32(q))
	}
	return out
}

const nowhere = -1

// placing is a placement under way.
type placing struct {
	seats []seat
	at    []int // the seat of each partition, or nowhere
	load  []int // how many each seat has
}

// may says that a partition may go to a seat, or stay there.
func (p *placing) may(q int32, s int) bool { return !p.seats[s].declines[q] || p.hopeless(q) }

// hopeless says that all decline a partition.
func (p *placing) hopeless(q int32) bool {
	return !slices.ContainsFunc(p.seats, func(o seat) bool { return !o.declines[q] })
}

// keep leaves partitions with their owners.
func (p *placing) keep() {
	for q := range p.at {
		p.at[q] = nowhere
	}
	said := make([]int32, len(p.at))
	for s, seat := range p.seats {
		for _, q := range seat.owns {
			if q >= 0 && int(q) < len(p.at) && (p.at[q] == nowhere || seat.round > said[q]) {
				p.at[q], said[q] = s, seat.round
			}
		}
	}
	for q, s := range p.at {
		if s != nowhere && !p.may(int32(q), s) {
			p.at[q] = nowhere
		} else if s != nowhere {
			p.load[s]++
		}
	}
}

// fill gives what nobody has to those who have least, what few may have first.
func (p *placing) fill() {
	var free []int32
	choice := map[int32]int{}
	for q := range p.at {
		if p.at[q] == nowhere {
			free = append(free, int32(q))
			for s := range p.seats {
				if p.may(int32(q), s) {
					choice[int32(q)]++
				}
			}
		}
	}
	slices.SortStableFunc(free, func(a, b int32) int { return cmp.Compare(choice[a], choice[b]) })
	for _, q := range free {
		to := nowhere
		for s := range p.seats {
			if p.may(q, s) && (to == nowhere || p.load[s] < p.load[to]) {
				to = s
			}
		}
		p.at[q] = to
		p.load[to]++
	}
}

// even takes one partition from a seat that has at least two more than another one, over seats between them where the partitions of the first can't go
// there. False: it is as even as can be. Each time the sum of the squares of the loads falls, so it comes to an end.
func (p *placing) even() bool {
	order := make([]int, len(p.seats))
	for s := range order {
		order[s] = s
	}
	slices.SortStableFunc(order, func(a, b int) int { return p.load[b] - p.load[a] })
	for _, from := range order {
		if p.shift(from) {
			return true
		}
	}
	return false
}

// shift looks for the shortest way from a seat to one that has at least two less, and moves one partition along each step of it.
func (p *placing) shift(from int) bool {
	type step struct {
		before int
		q      int32
	}
	came := map[int]step{from: {nowhere, 0}}
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if p.load[at] <= p.load[from]-2 {
			for s := at; s != from; s = came[s].before {
				p.at[came[s].q] = s
			}
			p.load[from]--
			p.load[at]++
			return true
		}
		for q, s := range p.at {
			for to := range p.seats {
				if _, seen := came[to]; s == at && !seen && !p.seats[to].declines[int32(q)] {
					came[to] = step{at, int32(q)}
					queue = append(queue, to)
				}
			}
		}
	}
	return false
}
