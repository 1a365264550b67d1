package topology

import (
	"errors"
	"fmt"
	"io"
)

const (
	// outputBytesMax bounds what is written in any format: far more than anybody reads, and where many nodes share one name, each
	// of which has all the predecessors, the text would not end.
	outputBytesMax = 256 << 20

	// pictureArrowsMax bounds the arrows of DOT, Mermaid and SVG, which are held in memory. Where many nodes share one
	// name an arrow leads to each of them, so there can be far more arrows than the description has successors.
	pictureArrowsMax = 1 << 20

	// svgBoxesMax and svgArrowsMax bound what is laid out: up to there it takes about a second, and nobody
	// has use for a larger picture that can't be searched or folded.
	svgBoxesMax  = 5_000
	svgArrowsMax = 10_000

	// notesMax bounds the notes of one subtopology in a drawing: more lines would hide what they stand above.
	notesMax = 100

	// labelRunesMax bounds a name in a drawing (not in text and JSON): longer than any legal name of Kafka (249), so only
	// nonsense is cut, with an ellipsis, and can't make a drawing unreadable.
	labelRunesMax = 300
)

// ErrTooLarge says that a description is beyond the limit of a format. The error that wraps it names the limit and what to
// use instead.
var ErrTooLarge = errors.New("topology too large to draw")

// limited passes bytes on until there were too many.
type limited struct {
	w      io.Writer
	left   int
	format Format
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left {
		return 0, fmt.Errorf("%w: as %s it has more than %d bytes", ErrTooLarge, l.format, outputBytesMax)
	}
	l.left -= len(p)
	return l.w.Write(p)
}
