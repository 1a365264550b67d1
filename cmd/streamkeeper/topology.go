package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"streamkeeper/client"
	"streamkeeper/client/explain"
	"streamkeeper/client/topology"
	"streamkeeper/internal/admin"
)

// topologyFlags are what describe can show of topology descriptions (KIP-1331).
type topologyFlags struct {
	Topology bool   `name:"topology" help:"Show the application's topology description instead (KIP-1331): as text what kafka-streams-groups.sh prints."`
	Members  bool   `name:"members" help:"With --topology: which member runs which task, below the text, or in the json, dot or mermaid."`
	Epochs   bool   `name:"epochs" help:"List the topology epochs that the plugin has descriptions of."`
	Epoch    *int32 `name:"epoch" placeholder:"N" help:"With --topology: the description of topology epoch N, where the plugin keeps earlier ones."`
	Diff     *int32 `name:"diff" placeholder:"N" help:"With --topology: what changed since topology epoch N, up to the current one or that of --epoch; text or json."`
}

// check refuses flags that do not go together.
func (f *topologyFlags) check(output string) error {
	drawn := output != "text" && output != "json"
	switch {
	case !f.Topology && (f.Members || f.Epoch != nil || f.Diff != nil):
		return errors.New("--members, --epoch and --diff are for --topology")
	case !f.Topology && drawn:
		return fmt.Errorf("--output %s is for --topology", output)
	case f.Epochs && (f.Members || f.Epoch != nil || f.Diff != nil || drawn):
		return errors.New("--epochs stands alone, with --output text or json")
	case f.Diff != nil && (f.Members || drawn):
		return errors.New("--diff goes with --epoch, and --output text or json")
	case f.Members && output == string(topology.SVG):
		return errors.New("--members is for --output text, json, dot or mermaid")
	}
	return nil
}

// show writes what the flags ask for.
func (f *topologyFlags) show(ctx context.Context, a *admin.Client, group, output string, w io.Writer) error {
	format, err := topology.ParseFormat(output)
	if err != nil {
		return err
	}
	switch {
	case f.Epochs:
		return f.epochs(ctx, a, group, format, w)
	case f.Diff != nil:
		return f.diff(ctx, a, group, format, w)
	}
	g, err := described(ctx, a, group, f.Epoch)
	if err != nil {
		return err
	}
	switch {
	case !f.Members:
		return g.WriteTopology(ctx, w, format)
	case format == topology.JSON:
		return writeJSON(w, struct {
			Description *topology.Description `json:"description"`
			Tasks       []client.RunningTask  `json:"tasks"`
		}{g.TopologyDescription, g.RunningTasks()})
	case format == topology.Text:
		if err := g.WriteTopology(ctx, w, format); err != nil {
			return err
		}
		return admin.WriteRunning(w, g.RunningTasks())
	}
	return g.TopologyDescription.WriteWithNotes(ctx, w, format, g.RunningNotes())
}

// described asks for the description of the group, of another topology epoch where epoch is not nil. Where there is none the error has Kafka's text,
// and in a second line why.
func described(ctx context.Context, a *admin.Client, group string, epoch *int32) (*client.GroupDescription, error) {
	asked := a.Groups().DescribeStreamsGroups(ctx, []string{group}, client.DescribeOptions{
		IncludeTopologyDescription: true, Explain: true, TopologyEpoch: epoch, Epochs: epoch != nil,
	})[0]
	if asked.Err != nil {
		return nil, asked.Err
	}
	g := asked.Description
	switch {
	case g.TopologyDescription != nil:
		return g, nil
	case epoch == nil:
		why := g.Explain()
		return nil, fmt.Errorf("%w\n%s", &client.NoTopologyError{Group: group, Status: g.TopologyStatus}, why.Description.TextAt(why.At))
	case g.TopologyStatus == client.TopologyFailed:
		return nil, &client.NoTopologyError{Group: group, Status: g.TopologyStatus}
	}
	return nil, fmt.Errorf("No topology description of topology epoch %d is stored for streams group '%s'.\n%s", *epoch, group, stored(g.Explanation)) //nolint:staticcheck // in the manner of Kafka's texts
}

// stored says which epochs there are.
func stored(g *explain.Group) string {
	switch {
	case g.EpochsError != "":
		return "Which ones are stored can't be told: " + explain.Clean(g.EpochsError)
	case len(g.Epochs) == 0:
		return "None is stored."
	}
	var names []string
	for _, e := range g.Epochs {
		names = append(names, strconv.Itoa(int(e)))
	}
	return "Stored: " + explain.Names(names) + "."
}

func (f *topologyFlags) epochs(ctx context.Context, a *admin.Client, group string, format topology.Format, w io.Writer) error {
	asked := a.Groups().DescribeStreamsGroups(ctx, []string{group}, client.DescribeOptions{Epochs: true})[0]
	if asked.Err != nil {
		return asked.Err
	}
	g := asked.Description
	switch {
	case g.Explanation == nil:
		return errors.New("the coordinator keeps no earlier topology epochs: it is not streamkeeper")
	case g.Explanation.EpochsError != "":
		return errors.New(explain.Clean(g.Explanation.EpochsError))
	}
	epochs := g.Explanation.Epochs
	if format == topology.JSON {
		if epochs == nil {
			epochs = []int32{}
		}
		return writeJSON(w, struct {
			Group         string  `json:"group"`
			TopologyEpoch int32   `json:"topologyEpoch"`
			Epochs        []int32 `json:"epochs"`
		}{group, g.TopologyEpoch, epochs})
	}
	var b strings.Builder
	b.WriteString("TOPOLOGY-EPOCH\n")
	for _, e := range epochs {
		b.WriteString(strconv.Itoa(int(e)))
		if e == g.TopologyEpoch {
			b.WriteString("  current")
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (f *topologyFlags) diff(ctx context.Context, a *admin.Client, group string, format topology.Format, w io.Writer) error {
	from, err := described(ctx, a, group, f.Diff)
	if err != nil {
		return err
	}
	to, err := described(ctx, a, group, f.Epoch)
	if err != nil {
		return err
	}
	return topology.Diff(from.TopologyDescription, to.TopologyDescription).Write(ctx, w, format)
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
