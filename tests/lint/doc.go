// Package lint holds the project's own rules as ordinary tests: which package may import which, what pure state
// machines may not do, what must be written down. Each rule says in its test's comment why it exists.
//
// File map:
//
//	tree_test.go      the parsed source of the repository
//	imports_test.go   the arrows between packages, and what pure packages may use
//	source_test.go    comments, limits, epochs, skips and sleeps, file lengths
//	markdown_test.go  links of the documents
//	size_test.go      no file that was built
package lint
