package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"streamkeeper/internal/kafkatest"
)

var (
	logLevel     = flag.String("log-level", "warn", "of the replicas, in TestTakeover")
	takeoverMost = flag.Int("takeover-groups", 100_000, "with -full: the most groups of TestTakeover")
)

// move is how TestTakeover measures.
type move struct {
	sizes    []int // groups in the log
	active   int   // one group in so many has a member
	interval time.Duration
	kafka    bool          // beside Kafka
	quiet    time.Duration // how long is measured on after the last shard has moved, for what comes late
	alone    bool          // with the most groups: one that hangs, and one that is the only one, as well
}

func theMove() move {
	if *full {
		return move{sizes: []int{*takeoverMost / 10, *takeoverMost}, active: 5, interval: 5 * time.Second, quiet: time.Second, kafka: true, alone: true}
	}
	return move{sizes: []int{1000}, active: 2, interval: time.Second, quiet: 200 * time.Millisecond}
}

const (
	// shardsTotal is shards as a number.
	shardsTotal = 50
	// movedWithin bounds the wait for the shards of one that is gone. They move after seconds, but for a machine that is busy.
	movedWithin = 90 * time.Second
)

// TestTakeover measures how long groups are without their coordinator when one of three is stopped, comes back, is killed, and hangs. Meanwhile
// nothing that was acknowledged may be lost, and no client may be told anything but to try again.
func TestTakeover(t *testing.T) {
	m := theMove()
	var tables strings.Builder
	for _, size := range m.sizes {
		r := newResults()
		b := bulk{prefix: "group", groups: size, active: size / m.active, offsets: 2}
		if m.kafka && *only != "streamkeeper" {
			t.Run(fmt.Sprintf("%d groups %s", size, nameKafka), func(t *testing.T) { m.measure(t, kafkaFleet(t, 3), b, r) })
			if m.alone && size == m.sizes[len(m.sizes)-1] && !t.Failed() {
				t.Run(fmt.Sprintf("%d groups one broker of %s", size, nameKafka), func(t *testing.T) { m.measureAlone(t, kafkaFleet(t, 1), b, r) })
			}
		}
		if *only != "kafka" && !t.Failed() {
			t.Run(fmt.Sprintf("%d groups %s", size, nameKeeper), func(t *testing.T) { m.measure(t, keeperFleet(t, 3), b, r) })
			if m.alone && size == m.sizes[len(m.sizes)-1] && !t.Failed() {
				t.Run(fmt.Sprintf("%d groups one replica of %s", size, nameKeeper), func(t *testing.T) { m.measureAlone(t, keeperFleet(t, 1), b, r) })
			}
		}
		if t.Failed() {
			return
		}
		fmt.Fprintf(&tables, "### %d groups, %d of them with a member\n\n%s\n", size, b.active, r.markdown(nameKafka, nameKeeper))
	}
	text := fmt.Sprintf("%d processors shared with the clients, %s.\n\n%s", runtime.NumCPU(), runtime.Version(), tables.String())
	t.Logf("\n%s", text)
	if *full {
		file := filepath.Join(kafkatest.CacheDir(), "takeover.md")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Logf("written to %s", file)
	}
}

// scene is one fleet with its clients.
type scene struct {
	t      *testing.T
	f      *fleet
	r      *results
	probes []*probe
	herd   *herd
	beats  int // members in the herd
	quiet  time.Duration
	end    func()
}

// stage fills the log and starts the clients. They end with the returned scene's end.
func (m move) stage(t *testing.T, f *fleet, b bulk, r *results) *scene {
	began := time.Now()
	sample := f.fill(t, b)
	t.Logf("filled and started in %s", time.Since(began).Round(time.Millisecond))
	s := &scene{t: t, f: f, r: r, quiet: m.quiet, herd: newHerd(f, m.interval)}
	l := newLanes(1<<20, clientTimeout) // each probe has connections of its own
	probes, taken := chooseProbes(b, sample, shardsTotal, f, l)
	s.probes = probes
	var rest []*group
	for i := range b.active {
		if !taken[i] {
			rest = append(rest, b.group(i, sample))
		}
	}
	s.beats = len(rest)
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, len(probes)+1)
	var wg sync.WaitGroup
	for _, p := range probes {
		wg.Go(func() { errs <- p.run(ctx) })
	}
	wg.Go(func() { errs <- s.herd.run(ctx, rest) })
	s.end = func() {
		cancel()
		wg.Wait()
		l.close()
		for range len(probes) + 1 {
			if err := <-errs; err != nil {
				t.Errorf("what no client may see: %v", err)
			}
		}
		failures := map[string]int{}
		for _, p := range probes {
			for what, n := range p.failures {
				failures[what] += n
			}
		}
		t.Logf("failures that the probes saw: %v", failures)
	}
	began = time.Now()
	s.await("every group answers", func(p *probe) error { return p.answeredSince(began, "") })
	t.Logf("every shard answered %s after the start", time.Since(began).Round(time.Millisecond))
	return s
}

// answeredSince is nil where a request was answered since then, by another than one.
func (p *probe) answeredSince(then time.Time, not string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.last.After(then):
		return fmt.Errorf("group %s of shard %d is not answered", p.g.id, p.shard)
	case p.by == not:
		return fmt.Errorf("group %s of shard %d is still at %s", p.g.id, p.shard, not)
	}
	return nil
}

// await waits until that is so of every probe.
func (s *scene) await(what string, so func(*probe) error) {
	s.t.Helper()
	deadline := time.Now().Add(movedWithin)
	for _, p := range s.probes {
		for {
			err := so(p)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				s.t.Fatalf("not within %s: %s: %v", movedWithin, what, err)
			}
			time.Sleep(probeRetry) // the probes run by themselves; nothing tells when one is answered
		}
	}
}

// balanced waits until each of the coordinators has its share of the shards, more or less.
func (s *scene) balanced() {
	s.t.Helper()
	kafkatest.Eventually(s.t, movedWithin, func() error {
		count := map[string]int{}
		for _, p := range s.probes {
			p.mu.Lock()
			count[p.by]++
			p.mu.Unlock()
		}
		for _, addr := range s.f.addrs {
			if count[addr] < len(s.probes)/len(s.f.addrs)*3/4 {
				return fmt.Errorf("groups of the probes by coordinator: %v", count)
			}
		}
		return nil
	})
}

// happening is what came of one event.
type happening struct {
	began time.Time
	moved gaps // groups whose shard changed hands
	other []time.Duration
}

// watch measures what happens from before do until the moment that until waits for, and a little longer. victim is the coordinator that goes; "":
// shards that changed hands are those that moved.
func (s *scene) watch(victim string, do func(), until func(began time.Time)) happening {
	s.t.Helper()
	from := make([]string, len(s.probes))
	for i, p := range s.probes {
		from[i] = p.open()
	}
	s.herd.reset()
	h := happening{began: time.Now()}
	do()
	until(h.began)
	pause(s.t.Context(), s.quiet)
	for i, p := range s.probes {
		longest, by := p.shut()
		if from[i] == victim || victim == "" && from[i] != by {
			h.moved[p.kind] = append(h.moved[p.kind], longest)
		} else {
			h.other = append(h.other, longest)
		}
	}
	return h
}

// report adds the rows of a happening.
func (s *scene) report(what string, h happening) {
	s.t.Helper()
	all := h.moved.all()
	if len(all) == 0 {
		s.t.Errorf("%s: no shard changed hands", what)
		return
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	for _, q := range []struct {
		name string
		p    float64
	}{{"median", 0.5}, {"p90", 0.9}, {"most", 1}} {
		s.r.addLess(s.f.name, fmt.Sprintf("%s: a request of a group that moves waits, %s, ms", what, q.name), ms(percentile(all, q.p)))
	}
	s.r.addLess(s.f.name, what+": of other groups, most, ms", ms(percentile(sorted(h.other), 1)))
	text := fmt.Sprintf("%s: %d groups move", what, len(all))
	for k, name := range [...]string{"heartbeat", "OffsetFetch", "OffsetCommit and OffsetFetch"} {
		d := sorted(h.moved[k])
		text += fmt.Sprintf("; %s median %s, most %s", name, percentile(d, 0.5).Round(100*time.Microsecond), percentile(d, 1).Round(100*time.Microsecond))
	}
	s.t.Log(text)
}

// crowd adds what the herd saw from a moment on, once everybody was answered.
func (s *scene) crowd(what string, from time.Time) {
	s.t.Helper()
	kafkatest.Eventually(s.t, movedWithin, func() error {
		if st := s.herd.since(from, s.beats); st.silent > 0 {
			return fmt.Errorf("%d members of %d were not answered", st.silent, s.beats)
		}
		return nil
	})
	st := s.herd.since(from, s.beats)
	s.r.add(s.f.name, what+": heartbeats answered in the first second", float64(st.answers))
	s.r.addLess(s.f.name, what+": … p99 ms", float64(percentile(st.took, 0.99))/float64(time.Millisecond))
	s.r.addLess(s.f.name, what+": until every member was answered, s", st.everyone.Seconds())
	s.t.Logf("%s: in the first second %d answers, p50 %s p99 %s most %s; %d lookups and %d attempts that failed in all; every member answered after %s", what, st.answers,
		percentile(st.took, 0.5).Round(10*time.Microsecond), percentile(st.took, 0.99).Round(10*time.Microsecond), percentile(st.took, 1).Round(10*time.Microsecond), st.lookups, st.failed, st.everyone.Round(time.Millisecond))
}

// gone waits until every probe was answered by another than the victim.
func (s *scene) gone(victim string) func(time.Time) {
	return func(began time.Time) {
		s.await("others answer for those of "+victim, func(p *probe) error { return p.answeredSince(began, victim) })
	}
}

func (m move) measure(t *testing.T, f *fleet, b bulk, r *results) {
	s := m.stage(t, f, b, r)
	defer s.end()
	s.balanced()
	pause(t.Context(), m.quiet)

	if *full {
		calm := s.watch("", func() {}, func(time.Time) { pause(t.Context(), 2*m.quiet) })
		r.addLess(f.name, "nothing happens: a request waits, most, ms", float64(percentile(sorted(calm.other), 1))/float64(time.Millisecond))
	}

	var took time.Duration
	h := s.watch(f.addrs[0], func() {
		began := time.Now()
		f.stop(0)
		took = time.Since(began)
	}, s.gone(f.addrs[0]))
	s.report("one of three stops", h)
	r.addLess(f.name, "one of three stops: until the process has ended, s", took.Seconds())
	s.crowd("one of three stops", h.began)
	stopped := percentile(h.moved.all(), 0.5)

	h = s.watch("", func() {
		began := time.Now()
		f.start(0)
		took = time.Since(began)
		f.balance()
	}, func(time.Time) { s.balanced() })
	s.report("it comes back", h)
	r.addLess(f.name, "it comes back: until it is ready, s", took.Seconds())
	s.crowd("it comes back", h.began)

	h = s.watch(f.addrs[1], func() { f.kill(1) }, s.gone(f.addrs[1]))
	s.report("one of three is killed", h)
	// A slow machine adds to both: only one that waits for the session as well is as slow as the other.
	if killed := percentile(h.moved.all(), 0.5); !*full && stopped > crashMin && stopped > killed-crashMin/2 {
		t.Errorf("groups of a replica that was stopped in order waited %s, those of one that was killed %s", stopped, killed)
	}
	s.crowd("one of three is killed", h.began.Add(percentile(h.moved.all(), 0.5)))

	if m.alone && b.groups == m.sizes[len(m.sizes)-1] {
		f.start(1)
		f.balance()
		s.balanced()
		h = s.watch(f.addrs[2], func() { f.pause(2) }, s.gone(f.addrs[2]))
		s.report("one of three hangs", h)
		f.resume(2)
		pause(t.Context(), 2*m.quiet) // one that wakes up must not harm what others serve
	}
}

// measureAlone is about one that has nobody beside it: it is stopped, or killed, and started again at once.
func (m move) measureAlone(t *testing.T, f *fleet, b bulk, r *results) {
	s := m.stage(t, f, b, r)
	defer s.end()
	for _, how := range []struct {
		what string
		end  func(int)
	}{{"the only one is restarted", f.stop}, {"the only one is killed and started", f.kill}} {
		pause(t.Context(), m.quiet)
		var again time.Time
		h := s.watch(f.addrs[0], func() { how.end(0); again = time.Now(); f.start(0) }, func(time.Time) {
			s.await("it answers again", func(p *probe) error { return p.answeredSince(again, "") })
		})
		s.report(how.what, h)
	}
}

// crashMin is what a crash takes at least: the session of the ownership group, which an orderly stop does not wait for.
const crashMin = 4 * time.Second
