package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"streamkeeper/internal/admin"
	"streamkeeper/internal/config"
)

// connection are the flags of the commands that ask a running cluster.
type connection struct {
	BootstrapServers []string      `name:"bootstrap-servers" default:"127.0.0.1:9292" placeholder:"HOST:PORT" help:"streamkeeper, or any cluster that coordinates streams groups. Default ${default}."`
	Timeout          time.Duration `name:"timeout" default:"30s" help:"How long to try."`
}

// defaultBootstrap is where serve and dev listen unless they are told otherwise.
const defaultBootstrap = "127.0.0.1:9292"

// errTimeout is the cause of a context that --timeout ended.
var errTimeout = errors.New("no answer in time")

// check refuses what can't be connected to before anybody waits for it.
func (c *connection) check() error {
	var errs []error
	if c.Timeout <= 0 {
		errs = append(errs, fmt.Errorf("--timeout: %v is no time to try", c.Timeout))
	}
	return usage(errors.Join(append(errs, (&config.Upstream{BootstrapServers: c.BootstrapServers}).Check())...))
}

// with runs f with a client, and with a context that --timeout bounds.
func (c *connection) with(ctx context.Context, f func(context.Context, *admin.Client) error) error {
	if err := c.check(); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, c.Timeout, errTimeout)
	defer cancel()
	a, err := admin.New(admin.Answering(bounded, c.BootstrapServers))
	if err != nil {
		return err
	}
	defer a.Close()
	return c.unanswered(ctx, bounded, f(bounded, a))
}

// unanswered says of an error under bounded, which is ctx with the bound of --timeout, that the latter was the reason, if it was.
func (c *connection) unanswered(ctx, bounded context.Context, err error) error {
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%v within %v from %v: %w", errTimeout, c.Timeout, c.BootstrapServers, err)
	}
	return err
}

// output is the --output flag.
type output struct {
	Output string `name:"output" short:"o" enum:"text,json" default:"text" help:"${enum}."`
}

func (o output) write(w io.Writer, v any, text func(io.Writer) error) error {
	if o.Output == "json" {
		return writeJSON(w, v)
	}
	return text(w)
}

// groupStates are the states of streams groups that can be asked for (KIP-1071).
var groupStates = []string{"Empty", "NotReady", "Assigning", "Reconciling", "Stable"}

type listCmd struct {
	connection
	output
	State []string `name:"state" placeholder:"STATE" help:"Only groups in this state (Empty, NotReady, Assigning, Reconciling, Stable); repeatable."`
}

func (l *listCmd) Run(ctx context.Context, s *stdio) error {
	for _, state := range l.State {
		if !slices.ContainsFunc(groupStates, func(s string) bool { return strings.EqualFold(s, state) }) {
			return usage(fmt.Errorf("--state %q: the states of a streams group are %s", state, strings.Join(groupStates, ", ")))
		}
	}
	return l.with(ctx, func(ctx context.Context, a *admin.Client) error {
		groups, err := a.List(ctx, l.State)
		if err != nil && len(groups) == 0 {
			return err
		}
		// A node that does not answer, a replica that is down for example, must not hide the groups of all others; the exit code and the error
		// still say that the list may lack some.
		return errors.Join(l.write(s.out, groups, func(w io.Writer) error { return admin.WriteList(w, groups) }), err)
	})
}

type describeCmd struct {
	connection
	topologyFlags
	Output string   `name:"output" short:"o" enum:"text,json,dot,mermaid,svg" default:"text" help:"text or json; with --topology also dot, mermaid or svg."`
	Groups []string `arg:"" name:"group" help:"The groups: the application.id of each Streams application."`
}

func (d *describeCmd) Run(ctx context.Context, s *stdio) error {
	if err := d.topologyFlags.check(d.Output); err != nil {
		return usage(err)
	}
	if len(d.Groups) > 1 && (d.Topology || d.Epochs) {
		return usage(errors.New("--topology and --epochs are of one group: call it once for each"))
	}
	return d.with(ctx, func(ctx context.Context, a *admin.Client) error {
		if d.Topology || d.Epochs {
			return d.show(ctx, a, d.Groups[0], d.Output, s.out)
		}
		found, errs := []*admin.Description{}, []error(nil)
		for _, group := range d.Groups {
			description, err := a.Describe(ctx, group)
			if err != nil { // which must not hide the others; most say the group themselves, as Kafka's do
				if len(d.Groups) > 1 && !strings.Contains(err.Error(), group) {
					err = fmt.Errorf("group %s: %w", group, err)
				}
				errs = append(errs, err)
			}
			if description != nil { // also where it lacks something
				found = append(found, description)
			}
		}
		return errors.Join(append([]error{d.writeAll(s.out, found)}, errs...)...)
	})
}

// writeAll writes one description as it is, and several as a list, or one below the other.
func (d *describeCmd) writeAll(w io.Writer, found []*admin.Description) error {
	if len(d.Groups) > 1 {
		return output{d.Output}.write(w, found, func(w io.Writer) error {
			for i, description := range found {
				if i > 0 {
					fmt.Fprintln(w)
				}
				if err := description.WriteText(w); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if len(found) == 0 {
		return nil
	}
	return output{d.Output}.write(w, found[0], found[0].WriteText)
}

type deleteCmd struct {
	connection
	Groups []string `arg:"" name:"group" help:"The groups: streams groups only; they must have no members."`
}

func (d *deleteCmd) Run(ctx context.Context, s *stdio) error {
	return d.with(ctx, func(ctx context.Context, a *admin.Client) error {
		var errs []error
		for _, group := range d.Groups {
			if err := a.Delete(ctx, group); err != nil {
				if !strings.Contains(err.Error(), "'"+group+"'") { // Kafka's words have it
					err = fmt.Errorf("group %s: %w", group, err)
				}
				errs = append(errs, err)
				continue
			}
			fmt.Fprintf(s.out, "deleted %s\n", group)
		}
		return errors.Join(errs...)
	})
}
