package client

import (
	"context"
	"fmt"
	"io"

	"streamkeeper/client/topology"
)

// NoTopologyError says why there is no topology description to show, in the words of kafka-streams-groups.
type NoTopologyError struct {
	Group  string
	Status TopologyStatus
}

func (e *NoTopologyError) Error() string {
	switch e.Status {
	case TopologyNotStored:
		return fmt.Sprintf("No topology description is stored for streams group '%s'.", e.Group)
	case TopologyFailed:
		return fmt.Sprintf("The broker failed to fetch the topology description for streams group '%s'. See the broker logs for details.", e.Group)
	}
	return fmt.Sprintf("No topology description is available for streams group '%s' (status: %v).", e.Group, e.Status)
}

// WriteTopology writes the group's topology description in the format. As text that is what
// kafka-streams-groups --describe --topology prints, byte for byte. Where there is none the error is a *NoTopologyError and nothing is written;
// the tool prints "\nError: " and its text, and ends with exit code 1.
func (d *GroupDescription) WriteTopology(ctx context.Context, w io.Writer, f topology.Format) error {
	if d.TopologyStatus != TopologyAvailable || d.TopologyDescription == nil {
		return &NoTopologyError{d.Group, d.TopologyStatus}
	}
	if err := d.TopologyDescription.Write(ctx, w, f); err != nil {
		return err
	}
	if f == topology.Text {
		_, err := io.WriteString(w, "\n") // the tool's own line end, after the formatter's
		return err
	}
	return nil
}
