package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"streamkeeper/eventlog"
)

// Line is one record of the log with what it needs to be printed.
type Line struct {
	Partition int32
	Entry     eventlog.Entry
	// Record is nil where the entry is a control record or can't be decoded; then Err says why.
	Record *eventlog.Record
	Err    error
	// Newer is the key of a record whose value is of a newer version; nil where the whole record, or not even its key, can be read.
	Newer *eventlog.Key
	// Void says that readers ignore the record: it was written by an owner that had been replaced (D4).
	Void bool
}

// Decoder makes lines of the entries of one partition, which it must be shown in their order.
type Decoder struct {
	Partition int32
	fence     eventlog.Fence
}

// Line decodes one entry.
func (d *Decoder) Line(e eventlog.Entry) Line {
	l := Line{Partition: d.Partition, Entry: e}
	if e.Control != eventlog.ControlNone {
		d.fence.Void(e)
		return l
	}
	rec, err := eventlog.Decode(eventlog.Raw{Key: e.Key, Value: e.Value})
	if err != nil {
		l.Err = err
		l.Void = d.fence.Void(e)
		if errors.Is(err, eventlog.ErrUnknownVersion) {
			l.Newer = &rec.Key
			if rec.Key.Type == eventlog.TypeOwnership && !eventlog.Forged(e, err) {
				d.fence = eventlog.Fence{} // whose claim counts now, and what is void, can't be told until the next that can be read
			}
		}
		return l
	}
	l.Record = &rec
	if o, ok := rec.Value.(*eventlog.Ownership); ok {
		l.Void = !d.fence.Observe(e, o)
	} else {
		l.Void = d.fence.Void(e)
	}
	return l
}

// Group is the group that the record belongs to, "" for none.
func (l Line) Group() string {
	switch {
	case l.Record != nil:
		return l.Record.Key.Group
	case l.Newer != nil:
		return l.Newer.Group
	}
	return ""
}

// TextHeader is the first line of the text form.
const TextHeader = "PARTITION  OFFSET     TIME                      TYPE                                  KEY AND VALUE"

// WriteText writes the line for people: partition, offset, time, type, key, value.
func (l Line) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%-9d  %-9d  %-24s  ", l.Partition, l.Entry.Offset, stamp(l.Entry.Timestamp))
	switch {
	case l.Entry.Control != eventlog.ControlNone:
		fmt.Fprintf(&b, "%-36s  producer=%d epoch=%d", controlText(l.Entry.Control), l.Entry.ProducerID, l.Entry.ProducerEpoch)
	case l.Newer != nil:
		key, _, err := parts(eventlog.Record{Key: *l.Newer})
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%-36s  %s (not decoded: %v, %d bytes)", l.Newer.Type, key, l.Err, len(l.Entry.Value))
	case l.Record == nil:
		fmt.Fprintf(&b, "%-36s  %v (key %d bytes, value %d bytes)", "(not decoded)", l.Err, len(l.Entry.Key), len(l.Entry.Value))
	default:
		key, payload, err := parts(*l.Record)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%-36s  %s", l.Record.Key.Type, key)
		if payload == "" {
			b.WriteString(" deleted")
		} else {
			b.WriteString(" " + payload)
		}
	}
	if l.Entry.Transactional && l.Entry.Control == eventlog.ControlNone {
		fmt.Fprintf(&b, " (in transaction of producer %d)", l.Entry.ProducerID)
	}
	if l.Void {
		b.WriteString(" (void: its writer had been replaced)")
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteJSON writes the line for programs: the record as kafka-dump-log decodes it, after where it stands.
func (l Line) WriteJSON(w io.Writer) error {
	head := struct {
		Partition     int32  `json:"partition"`
		Offset        int64  `json:"offset"`
		Timestamp     int64  `json:"timestamp"`
		ProducerID    int64  `json:"producerId"`
		ProducerEpoch int16  `json:"producerEpoch"`
		Transactional bool   `json:"transactional,omitempty"`
		Control       string `json:"control,omitempty"`
		Void          bool   `json:"void,omitempty"`
		Error         string `json:"error,omitempty"`
		KeyBytes      []byte `json:"keyBytes,omitempty"`
		ValueBytes    []byte `json:"valueBytes,omitempty"`
		Type          string `json:"type,omitempty"`
	}{
		Partition: l.Partition, Offset: l.Entry.Offset, Timestamp: l.Entry.Timestamp, ProducerID: l.Entry.ProducerID,
		ProducerEpoch: l.Entry.ProducerEpoch, Transactional: l.Entry.Transactional, Void: l.Void,
	}
	var body []byte
	switch {
	case l.Entry.Control != eventlog.ControlNone:
		head.Control = controlText(l.Entry.Control)
	case l.Record == nil:
		head.Error, head.KeyBytes, head.ValueBytes = l.Err.Error(), l.Entry.Key, l.Entry.Value
		if l.Newer != nil {
			head.Type = l.Newer.Type.String()
		}
	default:
		head.Type = l.Record.Key.Type.String()
		var err error
		if body, err = eventlog.JSON(*l.Record); err != nil {
			return err
		}
	}
	b, err := json.Marshal(head)
	if err != nil {
		return err
	}
	if body != nil {
		b = append(append(b[:len(b)-1], ','), body[1:]...)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// parts are the key as name=value pairs and the value as JSON, "" for a tombstone.
func parts(r eventlog.Record) (key, payload string, err error) {
	b, err := eventlog.JSON(r)
	if err != nil {
		return "", "", err
	}
	var doc struct {
		Payload *struct {
			Data json.RawMessage `json:"data"`
		} `json:"payload"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return "", "", errors.Join(fmt.Errorf("record %v", r.Key), err)
	}
	var k []string
	add := func(name, value string) {
		if value != "" {
			k = append(k, name+"="+value)
		}
	}
	add("group", r.Key.Group)
	add("member", r.Key.Member)
	add("topic", r.Key.Topic)
	if r.Key.Topic != "" {
		add("partition", strconv.Itoa(int(r.Key.Partition)))
	}
	if doc.Payload != nil {
		payload = string(doc.Payload.Data)
	}
	return strings.Join(k, " "), payload, nil
}

func controlText(c eventlog.ControlType) string {
	switch c {
	case eventlog.ControlCommit:
		return "COMMIT"
	case eventlog.ControlAbort:
		return "ABORT"
	}
	return "CONTROL"
}

// stamp is a time with milliseconds, in UTC so that lines of several machines compare.
func stamp(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}
