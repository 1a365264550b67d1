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
// one who does not; what all decline stays where it is. Beyond that partitions are shared evenly, and as few as possible move. Which ones move, and to whom,
// is chosen so that neighbours are at different seats: ids that differ in their last character fall in neighbouring partitions, and so do the shards of
// an installation's busiest groups (app-1, app-2 …), one replica would have them all. Nothing moves for that alone.
func place(n int32, seats []seat) [][]int32 {
	if len(seats) == 0 {
		return nil
	}
	p := placing{seats: seats, at: make([]int, n), was: make([]int, n), load: make([]int, len(seats))}
	p.keep()
	p.fill()
	for p.even() {
	}
	p.spread()
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
	was   []int // the seat that had it and may go on having it, or nowhere
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
	copy(p.was, p.at)
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

// shift looks for the way from a seat to the one that has least, and at least two less, and moves one partition along each step of it: to another one it would
// be moved once more. Among those that have as little it takes the nearest.
func (p *placing) shift(from int) bool {
	type step struct {
		before int
		q      int32
	}
	came := map[int]step{from: {nowhere, 0}}
	var unseen []int
	for s := range p.seats {
		if s != from {
			unseen = append(unseen, s)
		}
	}
	least := from
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if p.load[at] < p.load[least] {
			least = at
		}
		for q, s := range p.at {
			if len(unseen) == 0 {
				break // as soon as one partition may go anywhere: looking on would cost the cube of what there is
			}
			if s != at {
				continue
			}
			unseen = slices.DeleteFunc(unseen, func(to int) bool {
				if p.seats[to].declines[int32(q)] {
					return false
				}
				came[to] = step{at, int32(q)}
				queue = append(queue, to)
				return true
			})
		}
	}
	if p.load[least] > p.load[from]-2 {
		return false
	}
	for s := least; s != from; s = came[s].before {
		p.at[came[s].q] = s
	}
	p.load[from]--
	p.load[least]++
	return true
}

const (
	// nearMax is how far apart two partitions are at most that count as near each other. Ten ids that differ in a digit lie within nine of each other; beyond
	// that, and beyond twice as many replicas as there will be, it makes no difference.
	nearMax = 32
	// nearest is how much two neighbours at one seat weigh; others weigh less in proportion to their distance.
	nearest = 5040
	// spreadLooksMax bounds the exchanges that are looked at. A log of 1,000 partitions without owners needs a few millions, and each takes nanoseconds;
	// what a larger one would need beyond that it does without.
	spreadLooksMax = 8_000_000
)

// near is how much two partitions weigh at one seat. The last partition is a neighbour of the first: hash codes go round.
func (p *placing) near(q, r int) int {
	d := max(q-r, r-q)
	if d = min(d, len(p.at)-d); d > nearMax {
		return 0
	}
	return nearest / d
}

// eachNear calls f with the partitions near q, each once.
func (p *placing) eachNear(q int, f func(r, weight int)) {
	n := len(p.at)
	reach := min(nearMax, n/2)
	for d := 1; d <= reach; d++ {
		f((q+d)%n, nearest/d)
		if 2*d != n { // the one opposite is the same in both directions
			f((q-d+n)%n, nearest/d)
		}
	}
}

// spread exchanges partitions between seats, as long as that leaves fewer of them near others of their seat and moves no more of them than before: so only
// what moves anyway, or has no owner, is chosen. Each exchange makes the sum of what is near each other smaller, a whole number, so it comes to an end. It depends on
// nothing but the seats and their order: all leaders of a version come to the same.
func (p *placing) spread() {
	crowd := make([][]int, len(p.at)) // how much is near each partition, by seat
	for q := range crowd {
		crowd[q] = make([]int, len(p.seats))
		p.eachNear(q, func(r, weight int) { crowd[q][p.at[r]] += weight })
	}
	put := func(q, to int) {
		p.eachNear(q, func(r, weight int) {
			crowd[r][p.at[q]] -= weight
			crowd[r][to] += weight
		})
		p.at[q] = to
	}
	moves := func(q, s int) int {
		if p.was[q] == nowhere || p.was[q] == s {
			return 0
		}
		return 1
	}
	looks := 0
	for again := true; again; {
		again = false
		for q := range p.at {
			if p.was[q] == p.at[q] {
				continue // it stays; those that don't may change with it
			}
			s, best, with := p.at[q], 0, nowhere
			for r, t := range p.at {
				if looks++; looks > spreadLooksMax {
					return
				}
				if t == s || p.seats[t].declines[int32(q)] || p.seats[s].declines[int32(r)] || moves(q, t)+moves(r, s) > moves(q, s)+moves(r, t) {
					continue
				}
				if less := crowd[q][s] + crowd[r][t] - crowd[q][t] - crowd[r][s] + 2*p.near(q, r); less > best {
					best, with = less, r
				}
			}
			if with != nowhere {
				t := p.at[with]
				put(q, t)
				put(with, s)
				again = true
			}
		}
	}
}
