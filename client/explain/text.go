package explain

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// listedMax is how many names of a list the text shows; JSON has all that the coordinator told.
	listedMax = 10
	// nameWidthMax is how much of one name the text shows, in characters: ids may be thousands long.
	nameWidthMax = 249
)

// TextAt is the reason for people: its sentence, what of it has a time, and what to do. It is one line whatever the names in it hold.
func (r Reason) TextAt(at time.Time) string {
	var b strings.Builder
	b.WriteString(Clean(r.Text))
	var details []string
	add := func(format string, args ...any) { details = append(details, fmt.Sprintf(format, args...)) }
	for i, t := range r.Topics {
		if i == listedMax {
			add("%d more topics", len(r.Topics)-listedMax)
			break
		}
		if s := t.text(at); s != "" {
			details = append(details, s)
		}
	}
	if r.Since != nil {
		add("for %s", span(at.Sub(*r.Since)))
	}
	if r.Until != nil {
		add("%s left", span(r.Until.Sub(at)))
	}
	if len(details) > 0 {
		b.WriteString(" (" + strings.Join(details, "; ") + ")")
	}
	if r.Todo != "" {
		if !strings.HasSuffix(b.String(), ".") && !(len(details) > 0 && strings.HasSuffix(r.Text, ".")) {
			b.WriteString(".") // not all of Kafka's sentences have one
		}
		b.WriteString(" " + Clean(r.Todo))
	}
	return b.String()
}

// text is what is to say of the topic beyond its name; "" for nothing.
func (t Topic) text(at time.Time) string {
	var parts []string
	if t.Found > 0 && t.Expected > 0 && t.Found != t.Expected {
		parts = append(parts, fmt.Sprintf("has %d partitions, expected %d", t.Found, t.Expected))
	}
	switch {
	case t.Creating:
		parts = append(parts, "is being created")
	case t.Failure != "":
		s := "could not be created: " + Clean(t.Failure)
		if t.RetryAt != nil {
			s += ", tried again in " + span(t.RetryAt.Sub(at))
		}
		parts = append(parts, s)
	}
	if len(parts) == 0 {
		return ""
	}
	return Clean(t.Name) + " " + strings.Join(parts, ", ")
}

// TextAt is the description's state for people, in one line.
func (d Description) TextAt(at time.Time) string {
	var b strings.Builder
	b.WriteString(Clean(d.Text))
	if d.StoredAt != nil {
		b.WriteString(" It was pushed " + span(at.Sub(*d.StoredAt)) + " ago.")
	}
	if d.Reason != "" {
		b.WriteString(" The plugin says: " + strconv.Quote(strings.ToValidUTF8(d.Reason, "?")))
		if d.ReasonAt != nil {
			b.WriteString(", " + span(at.Sub(*d.ReasonAt)) + " ago")
		}
		b.WriteString(".")
	}
	if d.AskedAt != nil {
		fmt.Fprintf(&b, " Asked %s, the last time %s ago", times(d.Asked), span(at.Sub(*d.AskedAt)))
		if d.Member != "" {
			b.WriteString(" (member " + Clean(d.Member) + ")")
		}
		b.WriteString(".")
	}
	if d.NextAsk != nil {
		if left := d.NextAsk.Sub(at); left > 0 {
			b.WriteString(" Nobody is asked for another " + span(left) + ".")
		} else {
			b.WriteString(" The next heartbeat of a member asks again.")
		}
	}
	if d.Todo != "" {
		b.WriteString(" " + Clean(d.Todo))
	}
	return b.String()
}

func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return strconv.Itoa(n) + " times"
}

// span is a length of time to a tenth of a second below ten seconds, and to a second above; never negative.
func span(d time.Duration) string {
	d = max(d, 0)
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// Clean is s in one line of a terminal: control characters and line breaks of foreign names are escaped, and so are those that turn the
// direction of what follows; and a name that is too long is cut.
func Clean(s string) string {
	clean := true
	for _, r := range s {
		clean = clean && r != '\uFFFD' && !unsafe(r)
	}
	if clean {
		return s
	}
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if unsafe(r) {
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// unsafe are characters that move the cursor, break the line or turn the direction of the text behind them.
func unsafe(r rune) bool {
	return r < 0x20 || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069' || r == '\ufeff'
}

// Names is a list of names for a sentence, a few of them.
func Names(names []string) string {
	shown := make([]string, 0, min(len(names), listedMax))
	for i, n := range names {
		if i == listedMax {
			return strings.Join(shown, ", ") + " and " + strconv.Itoa(len(names)-listedMax) + " more"
		}
		shown = append(shown, short(n))
	}
	return strings.Join(shown, ", ")
}

// short is a name that fits a line.
func short(s string) string {
	if r := []rune(s); len(r) > nameWidthMax {
		return string(r[:nameWidthMax-1]) + "…"
	}
	return s
}
