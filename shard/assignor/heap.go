package assignor

// entry is an element of a minHeap: a process by its load, or a member by its number of tasks.
type entry struct {
	key   float64
	index int32
}

// minHeap is a binary heap that orders equal keys exactly as java.util.PriorityQueue does. Which of two equally
// loaded processes comes first depends on it, and with that every assignment: container/heap would give other
// (equally good) ones, which could not be compared with Kafka's.
type minHeap []entry

// push appends e and moves it up past strictly larger parents; an equal parent stays above.
func (h *minHeap) push(e entry) {
	*h = append(*h, e)
	a := *h
	i := len(a) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if e.key >= a[parent].key {
			break
		}
		a[i] = a[parent]
		i = parent
	}
	a[i] = e
}

// pop removes the smallest entry: the last one takes the root's place and sinks below strictly smaller children;
// of two equal children the left one moves up. The heap must not be empty.
func (h *minHeap) pop() entry {
	a := *h
	top, last := a[0], a[len(a)-1]
	a = a[:len(a)-1]
	*h = a
	if len(a) == 0 {
		return top
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= len(a) {
			break
		}
		if right := child + 1; right < len(a) && a[right].key < a[child].key {
			child = right
		}
		if last.key <= a[child].key {
			break
		}
		a[i] = a[child]
		i = child
	}
	a[i] = last
	return top
}
