package admin

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"streamkeeper/client"
	"streamkeeper/client/explain"
)

func table(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// WriteList writes a table of groups.
func WriteList(w io.Writer, groups []client.ListedGroup) error {
	t := table(w)
	fmt.Fprintln(t, "GROUP\tSTATE\tCOORDINATOR")
	for _, g := range groups {
		fmt.Fprintf(t, "%s\t%s\t%v\n", cell(g.Group), cell(g.State), g.Coordinator)
	}
	return t.Flush()
}

// WriteText writes the description for people: the group, why it is in its state, its topology description, settings of its own, its
// members, what it reads.
func (d *Description) WriteText(w io.Writer) error {
	t := table(w)
	fmt.Fprintln(t, "GROUP\tSTATE\tEPOCH\tASSIGNMENT-EPOCH\tTOPOLOGY-EPOCH\tASSIGNOR\tCOORDINATOR\tMEMBERS")
	fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%s\t%v\t%d\n", cell(d.Group), cell(d.State), d.Epoch, d.AssignmentEpoch, d.TopologyEpoch,
		cell(d.Assignor), d.Coordinator, len(d.Members))
	if err := t.Flush(); err != nil {
		return err
	}
	if err := d.writeReasons(w); err != nil {
		return err
	}
	if len(d.Settings) > 0 {
		t = table(w)
		fmt.Fprintln(t, "\nSETTING\tVALUE\tOTHERWISE")
		for _, s := range d.Settings {
			fmt.Fprintf(t, "%s\t%s\t%s\n", cell(s.Name), cell(s.Value), cell(s.Otherwise))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if len(d.Members) > 0 {
		t = table(w)
		fmt.Fprintln(t, "\nMEMBER\tEPOCH\tCLIENT-ID\tHOST\tPROCESS\tTASKS")
		for i := range d.Members {
			m := &d.Members[i]
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\n", cell(m.ID), m.Epoch, cell(m.ClientID), cell(m.Host), cell(m.ProcessID), tasksText(m))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if len(d.Offsets) > 0 {
		t = table(w)
		fmt.Fprintln(t, "\nTOPIC\tPARTITION\tCOMMITTED\tEND\tLAG\tTASK\tMEMBER")
		for _, o := range d.Offsets {
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", cell(o.Topic), o.Partition, number(o.Committed), number(o.End), number(o.Lag),
				cell(o.Task), cell(o.Member))
		}
		return t.Flush()
	}
	return nil
}

// writeReasons writes why the group is in its state, a line each, and where its topology description is if the coordinator tells.
func (d *Description) writeReasons(w io.Writer) error {
	g := d.Explain()
	var b strings.Builder
	for i, r := range g.Reasons {
		if i == 0 {
			fmt.Fprintf(&b, "\nWhy %s:\n", cell(d.State))
		}
		b.WriteString("  - " + r.TextAt(g.At) + "\n")
	}
	if d.Explanation != nil {
		b.WriteString("\n" + g.Description.TextAt(g.At) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteRunning writes a table of tasks and the members that run them.
func WriteRunning(w io.Writer, tasks []client.RunningTask) error {
	t := table(w)
	fmt.Fprintln(t, "TASK\tROLE\tMEMBER\tCLIENT-ID\tHOST\tPROCESS")
	for _, r := range tasks {
		role := r.Role
		if r.Pending {
			role += " to be"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", cell(r.Task), role, cell(r.Member), cell(r.ClientID), cell(r.Host), cell(r.ProcessID))
	}
	return t.Flush()
}

// tasksText lists the tasks as "0_1", and the target where the member is not there yet.
func tasksText(m *client.MemberDescription) string {
	var parts []string
	add := func(name string, now, target []client.TaskID) {
		if len(now) > 0 {
			parts = append(parts, name+" "+taskNames(now))
		}
		if !slices.Equal(now, target) {
			parts = append(parts, name+" to be "+taskNames(target))
		}
	}
	add("active", m.Assignment.Active, m.Target.Active)
	add("standby", m.Assignment.Standby, m.Target.Standby)
	add("warm-up", m.Assignment.Warmup, m.Target.Warmup)
	return cell(strings.Join(parts, "; "))
}

// taskNames lists tasks as Streams names them, subtopology_partition.
func taskNames(tasks []client.TaskID) string {
	if len(tasks) == 0 {
		return "none"
	}
	names := make([]string, len(tasks))
	for i, t := range tasks {
		names[i] = t.String()
	}
	return strings.Join(names, " ")
}

func number(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}

// cell is s as a table shows it: in one line, whatever it holds, and "-" for nothing.
func cell(s string) string {
	if s == "" {
		return "-"
	}
	return explain.Clean(s)
}
