package kafkatest

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync"
)

// event is a line "<milliseconds> group/name KIND rest" of the output of applications.
type event struct {
	at   int // where its line begins, in bytes from the beginning of the run
	rest string
}

// events are those of a process so far. Each look reads what has come since the last one: applications that run for an hour beside brokers
// that are killed log hundreds of megabytes.
type events struct {
	mu   sync.Mutex
	read int // bytes of the run that were looked at, up to the end of a line
	of   map[string][]event
}

// eventsOf are the events "group/name KIND" that begin at or after a place in the output of the run. A kind may go on with the first words of the rest,
// "VALUE store key": these are left out of what is returned.
func (p *process) eventsOf(key, kind string, began int) []event {
	e := &p.events
	e.mu.Lock()
	defer e.mu.Unlock()
	e.take(p.outputFrom(e.read))
	kind, words, further := strings.Cut(kind, " ")
	var found []event
	for _, v := range e.of[key+" "+kind] {
		rest, ok := v.rest, true
		if further {
			rest, ok = strings.CutPrefix(v.rest, words)
			ok = ok && (rest == "" || rest[0] == ' ')
			rest = strings.TrimPrefix(rest, " ")
		}
		if v.at >= began && ok {
			found = append(found, event{v.at, rest})
		}
	}
	return found
}

// take looks at the lines of b that are whole.
func (e *events) take(b []byte) {
	if e.of == nil {
		e.of = map[string][]event{}
	}
	for {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			return
		}
		at, line := e.read, string(b[:i])
		e.read, b = e.read+i+1, b[i+1:]
		millis, what, ok := strings.Cut(line, " ")
		if !ok || millis == "" || strings.Trim(millis, "0123456789") != "" {
			continue // of the log, or of a stack trace
		}
		key, what, _ := strings.Cut(what, " ")
		kind, rest, _ := strings.Cut(what, " ")
		if strings.Contains(key, "/") {
			e.of[key+" "+kind] = append(e.of[key+" "+kind], event{at, rest})
		}
	}
}

// outputFrom is what this run has printed from a place on; nil where that can't be read.
func (p *process) outputFrom(from int) []byte {
	f, err := os.Open(p.outFile)
	if err != nil {
		return nil
	}
	defer f.Close()
	if _, err := f.Seek(p.began+int64(from), io.SeekStart); err != nil {
		return nil
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return nil
	}
	return b
}
