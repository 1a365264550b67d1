package eventlog

import "streamkeeper/internal/sensor"

// Timings are how long batches take, as Kafka's CoordinatorRuntimeMetrics tell them apart.
type Timings struct {
	// Linger is the time that the first operation of a batch waits until the batch is closed and sent (batch-linger-time-ms).
	Linger sensor.Histogram
	// Flush is the time from a batch's first sending to its acknowledgement by all in-sync replicas (batch-flush-time-ms, and batch-flush-rate by its
	// count). Kafka's coordinator writes into its own log, so its flush is the local write alone.
	Flush sensor.Histogram
}

// Timings are those of all partitions since the log was opened.
func (k *Kafka) Timings() *Timings { return &k.timings }
