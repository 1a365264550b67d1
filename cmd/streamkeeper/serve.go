package main

import (
	"context"
	"errors"

	"streamkeeper/internal/config"
	"streamkeeper/internal/telemetry"
)

type serveCmd struct {
	config.Upstream
	config.Replica
	config.Logging
}

// Run runs one replica until the context ends.
func (c *serveCmd) Run(ctx context.Context, s *stdio) error {
	eff, err := c.Check()
	if err != nil {
		return usage(err)
	}
	log, err := telemetry.NewLogger(s.err, c.LogLevel, c.LogFormat)
	if err != nil {
		return err
	}
	s.logUnknown(log)
	r := &replica{flags: c.Replica, eff: eff, upstream: c.BootstrapServers, log: log}
	if err := r.prepare(); err != nil {
		return err
	}
	return r.run(ctx, func(r *running) {
		log.Info("streamkeeper is ready", "bootstrap", r.bootstrap, "node", c.NodeID, "cluster", c.BootstrapServers)
	})
}

// Check checks the flags that serve and dev share, and the addresses of the cluster, also against them.
func (c *serveCmd) Check() (config.Effective, error) {
	eff, err := c.Replica.Check()
	if err := errors.Join(err, c.Upstream.Check()); err != nil {
		return eff, err
	}
	return eff, c.NotAt(eff)
}
