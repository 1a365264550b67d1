package admin

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

func table(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// WriteList writes a table of groups.
func WriteList(w io.Writer, groups []Listed) error {
	t := table(w)
	fmt.Fprintln(t, "GROUP\tSTATE\tCOORDINATOR")
	for _, g := range groups {
		fmt.Fprintf(t, "%s\t%s\t%v\n", g.Group, orDash(g.State), g.Coordinator)
	}
	return t.Flush()
}

// WriteText writes the description as tables: the group, its members, what it reads.
func (d *Description) WriteText(w io.Writer) error {
	t := table(w)
	fmt.Fprintln(t, "GROUP\tSTATE\tEPOCH\tASSIGNMENT-EPOCH\tTOPOLOGY-EPOCH\tASSIGNOR\tCOORDINATOR\tMEMBERS")
	fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%s\t%v\t%d\n", d.Group, d.State, d.Epoch, d.AssignmentEpoch, d.TopologyEpoch,
		orDash(d.Assignor), d.Coordinator, len(d.Members))
	if err := t.Flush(); err != nil {
		return err
	}
	if len(d.Members) > 0 {
		t = table(w)
		fmt.Fprintln(t, "\nMEMBER\tEPOCH\tCLIENT-ID\tHOST\tPROCESS\tTASKS")
		for _, m := range d.Members {
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\n", m.ID, m.Epoch, m.ClientID, m.Host, m.ProcessID, m.tasksText())
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if len(d.Offsets) > 0 {
		t = table(w)
		fmt.Fprintln(t, "\nTOPIC\tPARTITION\tCOMMITTED\tEND\tLAG\tTASK\tMEMBER")
		for _, o := range d.Offsets {
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", o.Topic, o.Partition, number(o.Committed), number(o.End), number(o.Lag),
				orDash(o.Task), orDash(o.Member))
		}
		return t.Flush()
	}
	return nil
}

// tasksText lists the tasks as "0_1", and the target where the member is not there yet.
func (m *Member) tasksText() string {
	var parts []string
	add := func(name string, now, target Tasks) {
		if len(now) > 0 {
			parts = append(parts, name+" "+now.String())
		}
		if !maps.EqualFunc(now, target, slices.Equal) {
			parts = append(parts, name+" to be "+target.String())
		}
	}
	add("active", m.Active, m.TargetActive)
	add("standby", m.Standby, m.TargetStandby)
	add("warm-up", m.Warmup, m.TargetWarmup)
	return orDash(strings.Join(parts, "; "))
}

// String lists the tasks as Streams names them, subtopology_partition.
func (t Tasks) String() string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(t)) {
		for _, p := range t[id] {
			out = append(out, fmt.Sprintf("%s_%d", id, p))
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, " ")
}

func number(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
