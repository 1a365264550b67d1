// Package crash kills streamkeeper, as a process, at chosen steps, and looks at what it leaves: before and after each marker,
// each call of the plugin, each outcome, and each tombstone, with the same replica started again or another one taking over.
//
// The steps are chosen from outside. The cluster is one in memory whose connections are tapped: a record of the log is seen when a
// replica sends it and when the cluster's answer is on its way back, and the process dies there. The plugin is "topic", whose calls are
// seen in the same way, or "http", whose service does it with requests. So each death is at exactly one place, and repeats.
//
// File map:
//
//	tap_test.go      the connections between replicas and cluster, looked into
//	backends_test.go the plugins, and what they hold
//	world_test.go    the cluster, the service, the replicas
//	points_test.go   where a process can die
//	crash_test.go    pushes, deletions and the cleanup cycle, killed at each point
//	sweep_test.go    a sweep over many groups, killed between its batches
//	convert_test.go  conversions to a classic group, killed at each point
//	http_test.go     what the plugin's service is asked, with which trace context
package crash
