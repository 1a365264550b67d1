package projection

// Track notes, from now on, which groups get records of any kind but committed offsets applied in partition p. stop ends it and returns
// them, each once and in no order; it must be called once. Who has read groups after Track, and reads those that stop names again, has
// what was applied when stop was called, unless Restarts has changed meanwhile.
//
// What is noted is bounded by the number of groups in the partition.
func (s *Store) Track(p int32) (stop func() []string) {
	part, err := s.part(p)
	if err != nil {
		return func() []string { return nil }
	}
	touched := map[string]struct{}{}
	part.mu.Lock()
	defer part.mu.Unlock()
	if part.trackers == nil {
		part.trackers = map[*map[string]struct{}]struct{}{}
	}
	part.trackers[&touched] = struct{}{}
	return func() []string {
		part.mu.Lock()
		delete(part.trackers, &touched)
		part.mu.Unlock()
		groups := make([]string, 0, len(touched)) // nobody else has it any more
		for g := range touched {
			groups = append(groups, g)
		}
		return groups
	}
}

// note tells the trackers of groups whose records were applied. part.mu is held. A batch that is applied while Track is called is noted here
// after its commit, so a reader that saw the state before it hears of it.
func (part *partition) note(groups []string) {
	for t := range part.trackers {
		for _, g := range groups {
			(*t)[g] = struct{}{}
		}
	}
}
