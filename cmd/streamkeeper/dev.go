package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"streamkeeper/internal/config"
	"streamkeeper/internal/embedded"
	"streamkeeper/internal/telemetry"
)

type devCmd struct {
	config.Replica
	config.Logging
}

// devOpenTimeout bounds the opening of the embedded log, which reads over all of it after a kill.
const devOpenTimeout = 5 * time.Minute

// Run opens the embedded log and runs one replica in front of it.
func (c *devCmd) Run(ctx context.Context, s *stdio) error {
	eff, err := c.Check()
	if err != nil {
		return usage(err)
	}
	log, err := telemetry.NewLogger(s.err, c.LogLevel, c.LogFormat)
	if err != nil {
		return err
	}
	s.logUnknown(log)
	r := &replica{flags: c.Replica, eff: eff, log: log}
	if err := r.prepare(); err != nil { // before anything is made in the data directory
		return err
	}
	opening, cancel := context.WithTimeout(ctx, devOpenTimeout)
	defer cancel()
	cluster, err := embedded.Open(opening, embedded.Config{Dir: filepath.Join(c.DataDir, "cluster"), Logger: log})
	if err != nil {
		return err
	}
	r.upstream = cluster.Bootstrap()
	err = r.run(ctx, func(r *running) { welcome(s.out, r, c.DataDir) })
	if closed := cluster.Close(); err == nil {
		err = closed
	}
	return err
}

// welcome tells what to do next. Lines are short enough to be copied.
func welcome(w io.Writer, r *running, dataDir string) {
	lines := []string{
		"",
		"streamkeeper dev is ready.",
		"",
		"  bootstrap.servers   " + r.bootstrap,
		"  data                " + dataDir,
	}
	if r.admin != "" {
		lines = append(lines, "  metrics, health     http://"+r.admin)
	}
	lines = append(lines,
		"",
		"In a Kafka Streams application, 4.2 or newer:",
		"",
		`  props.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "`+r.bootstrap+`");`,
		`  props.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, "streams");`,
		"",
		"Its input topics must be there before it starts; a topic that is written to is made, with four partitions:",
		"",
		"  kafka-console-producer.sh --bootstrap-server "+r.bootstrap+" --topic in",
		"",
		"Then look at it, with Kafka's tools or ours:",
		"",
		"  kafka-streams-groups.sh --bootstrap-server "+r.bootstrap+" --list",
		"  "+command("list", r),
		"  "+command("describe APPLICATION_ID", r),
		"  "+command("log --follow", r),
		"",
		"Ctrl-C stops it; started again, everything is still there.",
		"",
	)
	fmt.Fprintln(w, strings.Join(lines, "\n"))
}

// command is a command line of ours, with the address where it is not the default.
func command(args string, r *running) string {
	line := "streamkeeper " + args
	if r.bootstrap != "127.0.0.1:9292" {
		line += " --bootstrap-servers " + r.bootstrap
	}
	return line
}
