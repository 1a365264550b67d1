package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"streamkeeper/internal/admin"
)

type forgetCmd struct {
	BootstrapServers []string      `name:"bootstrap-servers" default:"127.0.0.1:9292" placeholder:"HOST:PORT" help:"Another replica, one or more; not the brokers. Default ${default}."`
	Timeout          time.Duration `name:"timeout" default:"30s" help:"How long to try."`
	Nodes            []int32       `arg:"" name:"node-id" help:"The --node-id of the replica that is gone; several may be given."`
}

// Run has replicas forgotten, one after the other. One that can't be does not keep the others.
func (c *forgetCmd) Run(ctx context.Context, s *stdio) error {
	asked := connection{BootstrapServers: c.BootstrapServers, Timeout: c.Timeout}
	return asked.with(ctx, func(ctx context.Context, a *admin.Client) error {
		var errs []error
		for _, node := range c.Nodes {
			if err := a.Forget(ctx, node); err != nil {
				errs = append(errs, err)
				continue
			}
			fmt.Fprintf(s.out, "forgotten: node %d is not in Metadata any more. If that replica is started again it is back.\n", node)
		}
		return errors.Join(errs...)
	})
}
