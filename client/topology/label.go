package topology

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// visible makes a name fit to be drawn: what has no glyph or would end a line gets one (U+2400 and following), what is no
// text becomes U+FFFD, an empty name says so, and nonsense is cut at labelRunesMax.
func visible(name string) string {
	if name == "" {
		return "(no name)"
	}
	var b strings.Builder
	n := 0
	for _, r := range name { // bytes that are not UTF-8 come as U+FFFD
		if n++; n > labelRunesMax {
			b.WriteRune('…')
			break
		}
		switch {
		case r < ' ':
			r += '␀'
		case r == 0x7f:
			r = '␡'
		case r > 0x7f && r < 0xa0, r == 0x2028, r == 0x2029, r >= 0xfdd0 && r <= 0xfdef, r&0xfffe == 0xfffe:
			r = utf8.RuneError
		}
		b.WriteRune(r)
	}
	return b.String()
}

// turns says that a rune changes the direction of the text around it. Raw, it could make the source of a drawing look
// like another one.
func turns(r rune) bool {
	return r == 0x61c || r == 0x200e || r == 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// escape writes each rune that other names as what it says, and directions as a character reference of the form.
func escape(s string, reference string, other func(rune) string) string {
	var b strings.Builder
	for _, r := range s {
		if turns(r) {
			fmt.Fprintf(&b, reference, r)
		} else if e := other(r); e != "" {
			b.WriteString(e)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// cells is the width of a rune in a fixed-width font: nothing for marks that join the letter before, two for East Asian
// letters and emoji, else one. It is an estimate for the size of a box, which viewers with other fonts will not meet exactly.
func cells(r rune) int {
	switch {
	case r >= 0x300 && r <= 0x36f, r >= 0x483 && r <= 0x489, r >= 0x591 && r <= 0x5bd, r >= 0x610 && r <= 0x61a, r >= 0x64b && r <= 0x65f,
		r >= 0x20d0 && r <= 0x20ff, r >= 0xfe00 && r <= 0xfe0f, r >= 0x200b && r <= 0x200d, r >= 0xe0000 && r <= 0xe01ef, turns(r):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3, r >= 0xf900 && r <= 0xfaff,
		r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6, r >= 0x1f000 && r <= 0x1faff, r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}

func width(s string) int {
	n := 0
	for _, r := range s {
		n += cells(r)
	}
	return n
}

// wrap breaks a visible name into lines of at most so many cells, after punctuation where there is some in the
// last third of a line. Marks stay with their letter.
func wrap(s string, lineCellsMax int) []string {
	var lines []string
	runes := []rune(s)
	for len(runes) > 0 {
		n, end, good := 0, len(runes), 0
		for i, r := range runes {
			w := cells(r)
			if n+w > lineCellsMax {
				end = i
				break
			}
			n += w
			if n > lineCellsMax*2/3 && strings.ContainsRune("-_./: ", r) {
				good = i + 1
			}
		}
		if end < len(runes) && good > 0 {
			end = good
		}
		end = max(end, 1) // a line takes one rune at least, or there would be no end
		lines = append(lines, string(runes[:end]))
		runes = runes[end:]
	}
	return lines
}
