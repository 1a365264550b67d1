package bench

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"streamkeeper/internal/kafkatest"
)

var (
	growthMost  = flag.Int("growth-groups", 1_000_000, "with -full: the most groups of TestGrowth")
	growthLeast = flag.Int("growth-from", 10_000, "with -full: the fewest groups of TestGrowth")
)

// growth is how TestGrowth measures.
type growth struct {
	sizes   []int // idle groups in the log
	kafka   bool  // beside Kafka
	lasting time.Duration
}

func theGrowth() growth {
	if !*full {
		return growth{sizes: []int{400}, lasting: 200 * time.Millisecond}
	}
	growthWithin = 20 * time.Minute
	g := growth{kafka: true, lasting: 3 * time.Second}
	for n := *growthLeast; n < *growthMost; n *= 10 {
		g.sizes = append(g.sizes, n)
	}
	g.sizes = append(g.sizes, *growthMost)
	return g
}

const (
	// growthOffsets is how many committed offsets a group has.
	growthOffsets = 5
	// growthAge is how long ago they were committed: more than retentionShort, less than the default retention.
	growthAge      = 48 * time.Hour
	retentionShort = "1440"  // offsets.retention.minutes under which all have expired
	retentionLong  = "10080" // its default
	// goneOne: one group in so many has offsets of a topic that is deleted.
	goneOne = 100
	// kafkaLoadsWithin is after how long a broker that has not loaded everything is taken for one that can't.
	kafkaLoadsWithin = 3 * time.Minute
	// heapLargeMB is what a broker gets for more than heapLargeFrom groups, and in the second try, where it can't load the groups with brokerHeapMB.
	heapLargeMB   = 6144
	heapLargeFrom = 100_000
	// kafkaExpiresWithin is for how long a broker's sweep is watched; what it has not done by then is told as more.
	kafkaExpiresWithin = 4 * time.Minute
)

// growthWithin bounds each step. With -full it is longer: a million groups take a minute or two on a quiet machine.
var growthWithin = 2 * time.Minute

func (g growth) bulk(n int) bulk {
	return bulk{prefix: "idle", groups: n, offsets: growthOffsets, age: growthAge, gone: goneOne}
}

// gone is how many groups have offsets of the topic that is deleted.
func (b bulk) goneGroups() int { return (b.groups + b.gone - 1) / b.gone }

// TestGrowth measures what idle groups cost, and how that grows with their number. In between it checks that all offsets are there, that a list
// has every group, and that a sweep removes what has expired and nothing else.
func TestGrowth(t *testing.T) {
	g := theGrowth()
	f := &figures{sizes: g.sizes, cells: map[string]map[string]string{}, numbers: map[string]map[int]float64{}}
	for _, n := range g.sizes {
		if *only != "kafka" {
			t.Run(fmt.Sprintf("%d groups %s", n, nameKeeper), func(t *testing.T) { g.keeper(t, n, f) })
		}
		if g.kafka && *only != "streamkeeper" && !t.Failed() {
			t.Run(fmt.Sprintf("%d groups %s", n, nameKafka), func(t *testing.T) { g.broker(t, n, f) })
		}
		if *full { // a run that is broken off has something to show
			t.Logf("\n%s", f.markdown(g.kafka))
		}
		if t.Failed() {
			return
		}
	}
	text := fmt.Sprintf("%d processors shared with the clients, %s; %d committed offsets in each group. Growth is the last column of streamkeeper over the first.\n\n%s",
		runtime.NumCPU(), runtime.Version(), growthOffsets, f.markdown(g.kafka))
	t.Logf("\n%s", text)
	if *full {
		file := filepath.Join(kafkatest.CacheDir(), "growth.md")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Logf("written to %s", file)
	}
}

// figures are the cells of the table: a row, a column for each system and size.
type figures struct {
	sizes   []int
	rows    []string
	cells   map[string]map[string]string
	numbers map[string]map[int]float64 // streamkeeper's, by size
}

func column(system string, size int) string {
	return fmt.Sprintf("%s, %s groups", system, thousands(size))
}

// say puts a cell.
func (f *figures) say(system string, size int, row, text string) {
	if f.cells[row] == nil {
		f.rows = append(f.rows, row)
		f.cells[row] = map[string]string{}
	}
	f.cells[row][column(system, size)] = text
}

// put puts a number.
func (f *figures) put(t *testing.T, system string, size int, row string, v float64) {
	t.Helper()
	t.Logf("%s: %s", row, number(v))
	f.say(system, size, row, number(v))
	if system == nameKeeper {
		if f.numbers[row] == nil {
			f.numbers[row] = map[int]float64{}
		}
		f.numbers[row][size] = v
	}
}

// latencies puts what requests waited for.
func (f *figures) latencies(t *testing.T, system string, size int, what string, d []time.Duration) {
	t.Helper()
	ms := func(p float64) string { return number(float64(percentile(d, p)) / float64(time.Millisecond)) }
	text := fmt.Sprintf("%s / %s / %s", ms(0.5), ms(0.99), ms(1))
	t.Logf("%s: %s of %d", what, text, len(d))
	f.say(system, size, what+", p50 / p99 / most, ms", text)
}

func (f *figures) markdown(kafka bool) string {
	var b strings.Builder
	var columns []string
	for _, system := range []string{nameKafka, nameKeeper} {
		for _, n := range f.sizes {
			if system == nameKeeper || kafka {
				columns = append(columns, column(system, n))
			}
		}
	}
	fmt.Fprintf(&b, "| | %s | growth |\n|---%s|---|\n", strings.Join(columns, " | "), strings.Repeat("|---", len(columns)))
	for _, row := range f.rows {
		fmt.Fprintf(&b, "| %s |", row)
		for _, c := range columns {
			text := f.cells[row][c]
			if text == "" {
				text = "–"
			}
			fmt.Fprintf(&b, " %s |", text)
		}
		fmt.Fprintf(&b, " %s |\n", f.growth(row))
	}
	return b.String()
}

// growth is by how much a figure of streamkeeper grew from the first size to the last.
func (f *figures) growth(row string) string {
	sizes := slices.Sorted(maps.Keys(f.numbers[row]))
	if len(sizes) < 2 {
		return ""
	}
	from, to := sizes[0], sizes[len(sizes)-1]
	if f.numbers[row][from] == 0 {
		return ""
	}
	return fmt.Sprintf("× %s for × %d", number(f.numbers[row][to]/f.numbers[row][from]), to/from)
}

// thousands writes a number with commas.
func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
