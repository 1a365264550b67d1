package plugin

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// PermanentError is a failure that repeating can't cure: the description will never be accepted at its topology epoch (Kafka's
// StreamsTopologyDescriptionPermanentFailureException).
type PermanentError struct {
	Reason string // goes to the client
	Cause  error  // may be nil; for the log
}

func (e *PermanentError) Error() string { return e.Reason }

func (e *PermanentError) Unwrap() error { return e.Cause }

// Permanent says that it is a permanent failure; see IsPermanent.
func (e *PermanentError) Permanent() bool { return true }

// Permanent returns a permanent failure with this reason. Every other error is transient.
func Permanent(reason string) error { return &PermanentError{Reason: reason} }

// Permanentf is Permanent with a format.
func Permanentf(format string, args ...any) error { return Permanent(fmt.Sprintf(format, args...)) }

// TransientError is a failure after which the same call may succeed. Any error that is not permanent means the same; this one
// tells the client less than the log.
type TransientError struct {
	Reason string // goes to the client
	Cause  error  // for the log: addresses, file names
}

func (e *TransientError) Error() string { return e.Reason }

func (e *TransientError) Unwrap() error { return e.Cause }

// Permanent says that it is not permanent, whatever its cause was.
func (e *TransientError) Permanent() bool { return false }

// Transient returns a transient failure whose cause only the log sees.
func Transient(reason string, cause error) error {
	return &TransientError{Reason: reason, Cause: cause}
}

// IsPermanent says whether err is a permanent failure: of err and the errors that it wraps the first that has a method
// Permanent() bool decides; without one it is transient.
func IsPermanent(err error) bool {
	p, ok := errors.AsType[interface {
		error
		Permanent() bool
	}](err)
	return ok && p.Permanent()
}

// PanicError is the failure of a call that panicked.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

func isPanic(err error) bool {
	_, ok := errors.AsType[*PanicError](err)
	return ok
}

// Unwrap returns the value of the panic where that was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

var (
	// ErrNoCause is the failure of a future that was failed without an error. The text is Kafka's.
	ErrNoCause = errors.New("Plugin failure (no cause).") //nolint:staticcheck // Kafka's words

	// ErrNilFuture is the failure of a call that returned no future.
	ErrNilFuture = errors.New("the plugin returned no future")

	errGoexit = errors.New("the goroutine of the plugin ended without a result")

	// ErrClosed is the failure of calls to what is closed.
	ErrClosed = errors.New("the topology description plugin is closed")
)

// textFailed is what Kafka tells a client of a plugin that throws or returns no future.
const textFailed = "Topology description plugin failed."

// MessageBytesMax bounds what a plugin's error may tell a client and the log. Kafka can't encode a string above 32,767 bytes and answers
// UNKNOWN_SERVER_ERROR without a text where a plugin has a longer one; and nobody reads more than some lines.
const MessageBytesMax = 2048

// messageOf is the error's text, cut. An error may come from anywhere: a nil pointer in an error interface panics when it is asked.
func messageOf(err error) (s string) {
	defer func() {
		if r := recover(); r != nil {
			s = cutMessage(fmt.Sprintf("%T, whose text can't be had: %v", err, r))
		}
	}()
	return cutMessage(err.Error())
}

// detailOf is messageOf with the cause that a client does not see.
func detailOf(err error) string {
	text := messageOf(err)
	var cause error
	if e, ok := errors.AsType[*TransientError](err); ok {
		cause = e.Cause
	} else if e, ok := errors.AsType[*PermanentError](err); ok {
		cause = e.Cause
	}
	if cause == nil {
		return text
	}
	return cutMessage(text + ": " + messageOf(cause))
}

// cutMessage makes s valid UTF-8 of at most MessageBytesMax bytes, and says so where it cut.
func cutMessage(s string) string {
	whole := len(s)
	if whole > MessageBytesMax {
		end := MessageBytesMax - len("… (1234567890123456789 bytes in all)")
		for end > 0 && !utf8.RuneStart(s[end]) {
			end--
		}
		return strings.ToValidUTF8(s[:end], "?") + fmt.Sprintf("… (%d bytes in all)", whole)
	}
	return strings.ToValidUTF8(s, "?") // not U+FFFD: three bytes for one could pass the limit
}
