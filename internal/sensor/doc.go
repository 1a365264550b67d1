// Package sensor measures as Kafka's sensors do: rates, percentiles and maxima of the last moments, beside totals that only grow. Code that
// is measured knows Histogram, or counters of its own; what is made of them over time is a Set's affair.
//
//	set.go        Set: the ends of windows, one goroutine for all
//	rate.go       Rate: a counter's growth per second
//	histogram.go  Histogram: durations, counted without a lock
//	windowed.go   Windowed: a histogram's last moments
//
// A window is Kafka's: metrics.num.samples = 2 samples of metrics.sample.window.ms = 30 s, so a value covers the last 30 to 60
// seconds.
package sensor
