package traces

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"

	"streamkeeper/internal/kafkatest"
)

var buildFlag = flag.Bool("build-jaeger", false, "build Jaeger if it is not in the cache; minutes")

// jaeger is a real Jaeger, asked as its own web page does.
type jaeger struct{ *kafkatest.Jaeger }

func (j jaeger) endpoint() string { return j.OTLP }

// answer is what /api/traces says, as far as it is looked at.
type answer struct {
	Data []struct {
		Spans []struct {
			TraceID, SpanID, OperationName, ProcessID string
			References                                []struct{ RefType, TraceID, SpanID string }
			StartTime, Duration                       int64 // microseconds
			Tags                                      []tag
			Logs                                      []struct{ Fields []tag }
		}
		Processes map[string]struct{ ServiceName string }
	}
	Errors []struct{ Msg string }
}

type tag struct {
	Key   string
	Value any
}

func (t tag) text() string {
	switch v := t.Value.(type) {
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	default:
		return fmt.Sprint(v)
	}
}

// tracesMax is more traces than the story makes.
const tracesMax = 5000

func (j jaeger) spans() (spans, error) {
	var all spans
	for _, service := range []string{"streamkeeper", catalogueService} {
		a, err := j.traces(service)
		if err != nil {
			return nil, err
		}
		for _, t := range a.Data {
			for _, s := range t.Spans {
				out := span{Trace: s.TraceID, ID: s.SpanID, Service: t.Processes[s.ProcessID].ServiceName, Name: s.OperationName, Attributes: map[string]string{}, Start: time.UnixMicro(s.StartTime), Took: time.Duration(s.Duration) * time.Microsecond}
				for _, r := range s.References {
					if r.RefType == "CHILD_OF" && r.TraceID == s.TraceID && out.Parent == "" {
						out.Parent = r.SpanID
					} else {
						out.Links = append(out.Links, r.SpanID)
					}
				}
				for _, tag := range s.Tags {
					out.Attributes[tag.Key] = tag.text()
				}
				for _, l := range s.Logs {
					for _, f := range l.Fields {
						if f.Key == "event" {
							out.Events = append(out.Events, f.text())
						}
					}
				}
				out.Failed = out.Attributes["error"] == "true"
				all = append(all, out)
			}
		}
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(all, func(a, b span) bool { return a.ID == b.ID }), nil // a trace of both services came twice
}

func (j jaeger) traces(service string) (*answer, error) {
	resp, err := http.Get(fmt.Sprintf("%s/api/traces?service=%s&limit=%d&lookback=1h", j.API, url.QueryEscape(service), tracesMax))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var a answer
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, fmt.Errorf("%w in %.300s", err, body)
	}
	if len(a.Errors) > 0 && resp.StatusCode != http.StatusNotFound { // 404: no such service yet
		return nil, fmt.Errorf("Jaeger: %s", a.Errors[0].Msg)
	}
	return &a, nil
}

// TestTracesInJaeger plays the story with a real Jaeger, if it is in the cache.
func TestTracesInJaeger(t *testing.T) {
	if testing.Short() {
		t.Skip("-short, and this starts Jaeger")
	}
	j, err := kafkatest.StartJaeger(t, *buildFlag)
	if errors.Is(err, kafkatest.ErrNoJaeger) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	play(t, jaeger{j})
	if testing.Verbose() { // what docs/traces.md shows
		all, err := jaeger{j}.spans()
		if err != nil {
			t.Fatal(err)
		}
		for _, root := range all {
			if _, inside := all.byID(root.Parent); !inside && all.interesting(root) {
				t.Logf("\n%s", all.tree(root, ""))
			}
		}
	}
}
