package http

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"streamkeeper/plugin"
)

// Document is the body of a PUT and of the answer to a GET.
type Document struct {
	Group         string              `json:"group"`
	TopologyEpoch int32               `json:"topologyEpoch"`
	Description   *plugin.Description `json:"description"`
}

// Encode writes the document in the canonical form of its description.
func (d Document) Encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(d); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// decodeFor reads the answer to a GET for this group and epoch.
func decodeFor(b []byte, group string, epoch int32) (*plugin.Description, error) {
	var d struct {
		Group         *string             `json:"group"`
		TopologyEpoch *int32              `json:"topologyEpoch"`
		Description   *plugin.Description `json:"description"`
	}
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, fmt.Errorf("not a topology description: %w", err)
	}
	switch {
	case d.Description == nil:
		return nil, errors.New(`there is no "description" in it`)
	case d.Group != nil && *d.Group != jsonText(group):
		return nil, fmt.Errorf("it is of the group %.80q", *d.Group)
	case d.TopologyEpoch != nil && *d.TopologyEpoch != epoch:
		return nil, fmt.Errorf("it is of topology epoch %d", *d.TopologyEpoch)
	}
	return d.Description, nil
}

// jsonText is what becomes of a text that is no UTF-8 on its way through JSON.
func jsonText(s string) string { return string([]rune(s)) }
