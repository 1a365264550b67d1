// Package backup is the file in which the record log and the topic of topology descriptions are kept outside the cluster: the latest value of each
// key, of what counts (D4), and where each partition stood.
//
//	file.go    the format, as a table; Writer
//	reader.go  Check, which reads a file whole and finds what is wrong with it; Records
//
// It knows bytes of keys and values alone; what a record means is the business of package eventlog. Nothing here is safe for concurrent use.
package backup
