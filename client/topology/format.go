package topology

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Format is a way to write a description.
type Format string

// The formats.
const (
	Text    Format = "text"    // what kafka-streams-groups --describe --topology prints
	JSON    Format = "json"    // everything, for programs
	DOT     Format = "dot"     // Graphviz
	Mermaid Format = "mermaid" // Mermaid flowchart, for Markdown
	SVG     Format = "svg"     // a picture
)

// Formats are all formats, in the order in which a help text names them.
func Formats() []Format { return []Format{Text, JSON, DOT, Mermaid, SVG} }

// ParseFormat finds a format by its name, in any case.
func ParseFormat(name string) (Format, error) {
	f := Format(strings.ToLower(name))
	if slices.Contains(Formats(), f) {
		return f, nil
	}
	names := make([]string, 0, len(Formats()))
	for _, f := range Formats() {
		names = append(names, string(f))
	}
	return "", fmt.Errorf("unknown topology format %q, want one of %s", name, strings.Join(names, ", "))
}

// Write writes the description in the format. The error is ErrTooLarge at a limit of the format, the writer's, or that of ctx,
// which is looked at now and then: a large picture takes seconds. What was written before an error is incomplete.
func (d *Description) Write(ctx context.Context, w io.Writer, f Format) error {
	return d.WriteWithNotes(ctx, w, f, nil)
}

// WriteWithNotes is Write with notes on subtopologies. DOT and Mermaid have them; with the other formats they are an error.
func (d *Description) WriteWithNotes(ctx context.Context, w io.Writer, f Format, notes Notes) error {
	noted := func(write func(context.Context, *bufio.Writer, Notes) error) func(context.Context, *bufio.Writer) error {
		return func(ctx context.Context, w *bufio.Writer) error { return write(ctx, w, notes) }
	}
	write := map[Format]func(context.Context, *bufio.Writer) error{
		Text: d.writeText, JSON: d.writeJSON, DOT: noted(d.writeDOT), Mermaid: noted(d.writeMermaid), SVG: d.writeSVG,
	}[f]
	switch {
	case write == nil:
		_, err := ParseFormat(string(f))
		return err
	case len(notes) > 0 && f != DOT && f != Mermaid:
		return fmt.Errorf("topology as %s has no notes", f)
	}
	b := bufio.NewWriter(&limited{w: w, left: outputBytesMax, format: f})
	if err := write(ctx, b); err != nil {
		return err
	}
	return b.Flush()
}

// String is Kafka's text. Where that is beyond the limit the string ends there.
func (d *Description) String() string {
	var b strings.Builder
	_ = d.Write(context.Background(), &b, Text) // a string builder takes everything, and at the limit the rest is left out
	return b.String()
}

// pulse looks at a context once in a while: asking costs more than writing a line.
type pulse struct {
	ctx  context.Context
	beat int
}

func (p *pulse) err() error {
	if p.beat++; p.beat%256 == 0 {
		return context.Cause(p.ctx)
	}
	return nil
}
