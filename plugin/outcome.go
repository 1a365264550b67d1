package plugin

import "fmt"

// Kind says in one word what became of a call. It is the attribute "outcome" of the call's span.
type Kind string

// The kinds. The first five are successes.
const (
	Stored   Kind = "stored"    // Set is done
	Found    Kind = "found"     // Get has a description
	NotFound Kind = "not_found" // Get has none; a success for Kafka's counters
	Deleted  Kind = "deleted"   // Delete is done
	Listed   Kind = "listed"    // Epochs is done

	PermanentFailure Kind = "permanent" // the plugin refused for good, or returned no future
	TransientFailure Kind = "transient" // the plugin failed otherwise
	Panicked         Kind = "panicked"  // the method panicked (permanent), or its future failed because of a panic (transient)
	TimedOut         Kind = "timed_out" // no result within Config.Timeout
	Cancelled        Kind = "cancelled" // the caller's context ended first: the shard moved, or the process stops
	Busy             Kind = "busy"      // too many calls under way; the plugin was not called

	// Late is never delivered: it marks the span of a call that completed after TimedOut or Cancelled was.
	Late Kind = "late"
)

// Outcome is what became of a call, as the coordinator needs it.
type Outcome struct {
	Kind Kind
	// Permanent is set where repeating the call can't help: the failed topology epoch is recorded and nobody is
	// asked again. Of the failures of Get and Delete it means nothing.
	Permanent bool
	// Message is what the client gets of a failed Set, with error 135: the plugin's words, cut to MessageBytesMax,
	// or Kafka's fixed text. Empty on success.
	Message string
	// Err is the failure in full, for logs; nil on success.
	Err error
}

// OK says whether the call succeeded; a Get that found nothing did.
func (o Outcome) OK() bool { return o.Err == nil }

func (o Outcome) String() string {
	if o.OK() {
		return string(o.Kind)
	}
	return fmt.Sprintf("%s: %s", o.Kind, o.Message)
}

// failure classifies the error of a future as Kafka's invokeSetTopology does.
func failure(err error) Outcome {
	o := Outcome{Kind: TransientFailure, Message: messageOf(err), Err: err}
	if IsPermanent(err) {
		o.Kind, o.Permanent = PermanentFailure, true
	} else if isPanic(err) {
		o.Kind, o.Message = Panicked, textFailed // a stack or a nil pointer says nothing to a client
	}
	return o
}

// broken is the outcome of a method that panicked or returned no future: permanent in Kafka, since the plugin itself is
// at fault.
func broken(err error) Outcome {
	kind := PermanentFailure
	if isPanic(err) {
		kind = Panicked
	}
	return Outcome{Kind: kind, Permanent: true, Message: textFailed, Err: err}
}

// withoutResult is the outcome of a call that nobody waits for any more, or that never was made.
func withoutResult(kind Kind, err error) Outcome {
	return Outcome{Kind: kind, Message: messageOf(err), Err: err}
}
