package http

import (
	"fmt"
	"strings"
)

// SegmentBytesMax is the longest segment of an address that is sent: common servers take request lines of 8 KiB, and the rest
// of the address needs some of that. It holds every group id of 2,000 bytes.
const SegmentBytesMax = 6000

// GroupSegment writes a group's id as a segment of an address; see the package's comment.
func GroupSegment(group string) string {
	if group == "" {
		return "~"
	}
	dots := group == "." || group == ".."
	var b strings.Builder
	for i := range len(group) {
		if c := group[i]; plain(c) && !dots {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "~%02X", c)
		}
	}
	return b.String()
}

// GroupOf reads what GroupSegment wrote, and refuses everything else, so that a group has one segment.
func GroupOf(segment string) (string, error) {
	if segment == "~" {
		return "", nil
	}
	var b strings.Builder
	for i := 0; i < len(segment); i++ {
		c := segment[i]
		switch {
		case plain(c):
			b.WriteByte(c)
			continue
		case c == '~' && i+2 < len(segment):
			high, low := hexDigit(segment[i+1]), hexDigit(segment[i+2])
			if high >= 0 && low >= 0 {
				b.WriteByte(byte(high<<4 | low))
				i += 2
				continue
			}
		}
		return "", fmt.Errorf("%.80q is no group in an address: at byte %d", segment, i)
	}
	group := b.String()
	if GroupSegment(group) != segment {
		return "", fmt.Errorf("%.80q is not how the group %.80q is written in an address", segment, group)
	}
	return group, nil
}

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '-' || c == '_'
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
