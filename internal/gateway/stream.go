package gateway

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"streamkeeper/internal/wire"
)

// stream is one socket with its two buffers. Reading and writing belong to different goroutines: of a client's
// socket the receiver reads and the responder writes, of an upstream socket the other way round.
type stream struct {
	conn  net.Conn
	r     *bufio.Reader
	w     *bufio.Writer
	stall time.Duration
	// beforeRead is called before each read that may block. It flushes the opposite direction: an answer that
	// waits in a buffer while we wait for the next one would stall a client that pipelines.
	beforeRead func() error
	wide       *wideBuffers // while a large frame passes: r and w are these
}

func newStream(conn net.Conn, readBytes, writeBytes int, stall time.Duration) *stream {
	s := &stream{conn: conn, stall: stall}
	s.r = bufio.NewReaderSize((*source)(s), readBytes)
	s.w = bufio.NewWriterSize((*sink)(s), writeBytes)
	return s
}

// source is the reading side of a stream below its buffer.
type source stream

func (s *source) Read(p []byte) (int, error) {
	if err := s.beforeRead(); err != nil {
		return 0, err
	}
	return s.conn.Read(p)
}

// sink is the writing side of a stream below its buffer: a peer must take something within the stall time-out.
type sink stream

func (s *sink) Write(p []byte) (int, error) {
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.stall)); err != nil {
		return 0, &writeError{(*stream)(s), err}
	}
	n, err := s.conn.Write(p)
	if err != nil {
		err = &writeError{(*stream)(s), err}
	}
	return n, err
}

// writeError says that it was the writing side that failed where one stream is copied to another.
type writeError struct {
	to  *stream
	err error
}

func (e *writeError) Error() string { return e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

// wroteTo says that err is from writing to s.
func (s *stream) wroteTo(err error) bool {
	var w *writeError
	return errors.As(err, &w) && w.to == s
}

// copyTo moves n bytes from s to dst: what is buffered through the buffers, a large rest from socket to socket, so
// that the kernel splices it.
func (s *stream) copyTo(dst *stream, n int64) error {
	for n > 0 {
		if s.r.Buffered() == 0 {
			if n >= spliceBytesMin && (s.wide == nil || s.wide.under.Buffered() == 0) {
				return s.spliceTo(dst, n)
			}
			if _, err := s.r.Peek(1); err != nil {
				return unexpected(err)
			}
		}
		part, _ := s.r.Peek(int(min(n, int64(s.r.Buffered())))) // never fails: it is buffered
		if _, err := dst.w.Write(part); err != nil {
			return err
		}
		s.r.Discard(len(part))
		n -= int64(len(part))
	}
	return nil
}

func (s *stream) spliceTo(dst *stream, n int64) error {
	if err := dst.w.Flush(); err != nil {
		return err
	}
	for n > 0 {
		if err := s.beforeRead(); err != nil {
			return err
		}
		if err := dst.conn.SetWriteDeadline(time.Now().Add(dst.stall)); err != nil {
			return &writeError{dst, err}
		}
		// The concrete types matter: *net.TCPConn splices from a *net.TCPConn.
		moved, err := io.CopyN(dst.conn, s.conn, min(n, spliceBytesStep))
		if err != nil {
			if dst.failedBy(err) {
				return &writeError{dst, err}
			}
			return unexpected(err)
		}
		n -= moved
		if s.wide != nil {
			s.wide.frame.N -= moved
		}
	}
	return nil
}

// failedBy says whether it was s that made a copy to it fail. The kernel names neither side where it splices, so s is looked at: one that was reset takes no more, nor one
// that is stalled.
func (s *stream) failedBy(err error) bool {
	if errors.Is(err, io.EOF) {
		return false
	}
	var op *net.OpError
	for e := err; errors.As(e, &op); e = op.Err {
		switch op.Op {
		case "read":
			return false
		case "write":
			return true
		}
	}
	return !takesMore(s.conn)
}

// wideBuffers serve while one large frame passes: with the small ones of a connection a megabyte of small parts
// would take four times the system calls.
type wideBuffers struct {
	r     *bufio.Reader
	w     *bufio.Writer
	under *bufio.Reader    // the stream's own
	frame io.LimitedReader // ends with the frame, so that nothing of the next one is taken
}

var widePool = sync.Pool{New: func() any {
	return &wideBuffers{r: bufio.NewReaderSize(nil, wideBytes), w: bufio.NewWriterSize(nil, wideBytes)}
}}

// widely runs pass, which passes a frame of n bytes from src to dst, with wide buffers if the frame is large.
func widely(src, dst *stream, n int64, pass func() error) error {
	if n < wideBytes {
		return pass()
	}
	if err := dst.w.Flush(); err != nil {
		return err
	}
	b := widePool.Get().(*wideBuffers)
	r, w := src.r, dst.w
	b.under, b.frame = r, io.LimitedReader{R: r, N: n}
	b.r.Reset(&b.frame)
	b.w.Reset((*sink)(dst))
	src.r, dst.w, src.wide = b.r, b.w, b
	err := pass()
	if err == nil {
		err = b.w.Flush()
	}
	src.r, dst.w, src.wide = r, w, nil
	b.under, b.frame.R = nil, nil
	b.r.Reset(nil)
	b.w.Reset(nil)
	widePool.Put(b)
	return err
}

// peekLength reads the length prefix of the next frame without taking it. The frame must be of bytesMin to bytesMax bytes.
func (s *stream) peekLength(bytesMin, bytesMax int) (int, error) {
	prefix, err := s.r.Peek(4)
	if err != nil {
		if len(prefix) > 0 {
			err = unexpected(err)
		}
		return 0, err
	}
	return wire.CheckLength([4]byte(prefix), bytesMin, bytesMax)
}

// unexpected turns an end of file into the one that says that more was announced.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
