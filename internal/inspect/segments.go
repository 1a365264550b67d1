package inspect

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Segments writes batches as the leader sent them into files that Kafka's kafka-dump-log reads:
// DIR/<topic>-<partition>/<first offset>.log. Existing files are not touched.
type Segments struct {
	dir   string
	topic string
	file  *os.File
	buf   *bufio.Writer
	part  int32
	Files []string // what was written, in the order of writing
}

// NewSegments returns a writer below dir, which is made where it is missing.
func NewSegments(dir, topic string) (*Segments, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return &Segments{dir: dir, topic: topic, part: -1}, nil
}

// Write appends a batch; the batches of one partition must come together and in their order.
func (s *Segments) Write(partition int32, b Batch) error {
	if s.file == nil || s.part != partition {
		if err := s.Close(); err != nil {
			return err
		}
		dir := filepath.Join(s.dir, fmt.Sprintf("%s-%d", s.topic, partition))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		name := filepath.Join(dir, fmt.Sprintf("%020d.log", b.FirstOffset))
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, os.ErrExist) {
			return fmt.Errorf("%s is there already: give an empty directory", name)
		}
		if err != nil {
			return err
		}
		s.file, s.buf, s.part = f, bufio.NewWriter(f), partition
		s.Files = append(s.Files, name)
	}
	_, err := s.buf.Write(b.Bytes)
	return err
}

// Close completes the file that is being written.
func (s *Segments) Close() error {
	if s.file == nil {
		return nil
	}
	err := errors.Join(s.buf.Flush(), s.file.Close())
	s.file, s.buf = nil, nil
	return err
}
