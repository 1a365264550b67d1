// Package offsets decides over the committed offsets of streams groups: which commits are accepted, what a
// fetch answers, what has expired. Pure functions: they read a View and return records and responses.
package offsets
