package coordinator

import "sync"

// fanoutMax is how many groups of one request are worked on at a time: enough to keep every shard busy, too few for one
// request with a million ids to start a million goroutines.
const fanoutMax = 32

// fanout calls f for each index below n, at most fanoutMax at a time, and returns when all have returned.
func fanout(n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(n, fanoutMax) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range next {
				f(i)
			}
		}()
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// distinct returns the ids, each once, in their order: Kafka collapses duplicates of DeleteGroups before it works on them.
func distinct(ids []string) []string {
	seen := make(map[string]struct{}, len(ids))
	out := make([]string, 0, len(ids))
	for _, id := range ids {
		if _, ok := seen[id]; !ok {
			seen[id] = struct{}{}
			out = append(out, id)
		}
	}
	return out
}
