// Package conformance is a test suite for topology description plugins. Every built-in plugin passes it, and whoever writes
// another one can run it:
//
//	func TestConformance(t *testing.T) {
//	    conformance.Run(t, func(t *testing.T) plugin.Plugin { return mine.New(...) })
//	}
//
// open returns a plugin with nothing stored; it is called once per subtest, and the suite closes what it returns. What open
// starts besides, such as a server, it ends with t.Cleanup. Plugins that share one store must see only their own groups: each
// subtest uses ids that contain its name, but for the test of names.
//
// A plugin may refuse large descriptions for good; one of 128 KiB, as Description.Bytes counts, it has to take.
//
// The suite checks what package plugin's contract promises the coordinator, from the outside: a future that never completes
// fails after ten seconds. It is worth running under the race detector.
//
// File map:
//
//	conformance.go   Run, and calls that wait
//	basics.go        set, get, delete, epochs, copies
//	names.go         every legal group id and every text in a description
//	shapes.go        odd and large descriptions
//	concurrency.go   many calls at once, cancellation, close
package conformance
