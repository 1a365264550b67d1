package projection

import (
	"errors"
	"fmt"
	"time"
)

// closeWaitMax is how long Close waits for readers that are still at it, snapshots above all.
const closeWaitMax = 10 * time.Second

// Close ends the store. What was applied is on disk afterwards, if the disk takes it.
func (s *Store) Close() error {
	s.mu.Lock()
	select {
	case <-s.closing:
		s.mu.Unlock()
		return nil
	default:
	}
	full := s.disk.full()
	close(s.closing)
	s.mu.Unlock()
	s.gate.Lock() // the tail's calls are done
	s.gate.Unlock()
	s.ended.Wait()
	for _, part := range s.parts {
		part.mu.Lock()
		part.notify()
		part.mu.Unlock()
	}

	s.mu.Lock()
	e := s.engine
	s.engine = nil
	s.mu.Unlock()
	s.disk.armed.Store(false)
	var err error
	if full == nil && e.err() == nil {
		err = e.flush()
	}
	closed := make(chan error, 1)
	go e.retire(func() { // on a disk that hangs, or behind a reader that does, after Close has given up: whoever opens the directory next needs the lock
		told := errors.Join(err, e.close())
		if e.err() != nil || full != nil {
			told = nil // it was told, and what is on disk is whole
		}
		closed <- errors.Join(told, s.lock.Close())
	})
	select {
	case err := <-closed:
		return err
	case <-time.After(closeWaitMax):
		return fmt.Errorf("projection: %s is still being read, and was left open", s.cfg.Dir)
	}
}

// flushNowAndThen writes to disk what is in memory, so that a kill costs little.
func (s *Store) flushNowAndThen() {
	defer s.ended.Done()
	t := time.NewTicker(s.cfg.FlushInterval)
	defer t.Stop()
	for {
		select {
		case <-s.closing:
			return
		case <-t.C:
		}
		e, err := s.current()
		if err != nil {
			return
		}
		// Each asking adds a memtable, also behind a flush that does not end.
		if s.disk.full() == nil && e.err() == nil && e.flushBegan.Load() == 0 && e.dirty.Swap(false) {
			if _, err := e.db.AsyncFlush(); err != nil {
				e.breakDown(err)
			}
		}
		e.release()
	}
}
