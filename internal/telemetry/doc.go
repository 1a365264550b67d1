// Package telemetry makes what an operator looks at: log lines, traces, metrics, health.
//
//	log.go      structured logs: readable on a terminal, JSON elsewhere
//	traces.go   OTLP traces, switched on by the standard OTEL_ variables
//	undelivered.go   one line a minute while no collector takes the traces
//	traces_text.go   spans whose texts come from clients, made valid UTF-8
//	metrics.go  the Prometheus registry, and instruments that read counters when they are asked
//	admin.go    /healthz, /readyz, /metrics
//	systemd.go  what a service manager is told: ready, well, stopping
//
// It knows nothing of groups and shards: what is measured and when a replica is ready is handed in.
package telemetry
