package telemetry

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// validText is an exporter that makes every text of a span valid UTF-8 before the next one gets it. Group, member and client ids come from
// clients, as any bytes; OTLP's encoder refuses a whole batch of spans for one bad byte.
type validText struct{ sdktrace.SpanExporter }

func (v validText) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	valid := make([]sdktrace.ReadOnlySpan, len(spans)) // a copy: the batch is its processor's
	for i, s := range spans {
		if valid[i] = s; !validSpan(s) {
			valid[i] = cleanSpan{s}
		}
	}
	return v.SpanExporter.ExportSpans(ctx, valid)
}

func validSpan(s sdktrace.ReadOnlySpan) bool {
	if !utf8.ValidString(s.Name()) || !utf8.ValidString(s.Status().Description) || !validAttributes(s.Attributes()) {
		return false
	}
	for _, e := range s.Events() {
		if !utf8.ValidString(e.Name) || !validAttributes(e.Attributes) {
			return false
		}
	}
	return true
}

func validAttributes(list []attribute.KeyValue) bool {
	for _, a := range list {
		switch a.Value.Type() {
		case attribute.STRING:
			if !utf8.ValidString(a.Value.AsString()) {
				return false
			}
		case attribute.STRINGSLICE:
			if slices.ContainsFunc(a.Value.AsStringSlice(), func(s string) bool { return !utf8.ValidString(s) }) {
				return false
			}
		}
	}
	return true
}

// cleanSpan is a span with a question mark for what is no UTF-8.
type cleanSpan struct{ sdktrace.ReadOnlySpan }

func (c cleanSpan) Name() string { return cleanText(c.ReadOnlySpan.Name()) }

func (c cleanSpan) Attributes() []attribute.KeyValue {
	return cleanAttributes(c.ReadOnlySpan.Attributes())
}

func (c cleanSpan) Status() sdktrace.Status {
	s := c.ReadOnlySpan.Status()
	s.Description = cleanText(s.Description)
	return s
}

func (c cleanSpan) Events() []sdktrace.Event {
	events := slices.Clone(c.ReadOnlySpan.Events())
	for i := range events {
		events[i].Name, events[i].Attributes = cleanText(events[i].Name), cleanAttributes(events[i].Attributes)
	}
	return events
}

func cleanAttributes(list []attribute.KeyValue) []attribute.KeyValue {
	list = slices.Clone(list)
	for i, a := range list {
		switch a.Value.Type() {
		case attribute.STRING:
			list[i].Value = attribute.StringValue(cleanText(a.Value.AsString()))
		case attribute.STRINGSLICE:
			texts := a.Value.AsStringSlice()
			for j := range texts {
				texts[j] = cleanText(texts[j])
			}
			list[i].Value = attribute.StringSliceValue(texts)
		}
	}
	return list
}

func cleanText(s string) string { return strings.ToValidUTF8(s, "?") }
