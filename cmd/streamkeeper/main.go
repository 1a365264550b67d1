// Command streamkeeper is the Kafka Streams group coordinator (KIP-1071) in front of a Kafka-compatible cluster.
//
//	serve.go replica.go drain.go             one replica: wiring, its end; stopping.go: the deadline of a stop
//	itself.go storage.go                     what is refused at the start; what ends a replica with a sick disk
//	progress.go                              how far the reading of the log is
//	metrics.go kafka_metrics.go              what it measures; what Kafka's coordinator measures, too
//	descriptions.go sweep.go                 topology descriptions and their plugin; shards as the cleanup cycle sees them
//	dev.go                                   the same with an embedded log
//	backup.go restore.go restore_source.go   the log in a file; a log made of a file, or of a data directory
//	groups.go topology.go                    list, describe, delete: streams groups, over Kafka's protocol; topology descriptions
//	log.go log_explain.go shards.go          the record log, over the network; what its records mean
//	forget.go                                replicas that are gone for good
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"streamkeeper/internal/config"
)

// cli is the command line. Every flag can also be given in the file of --config, or in the environment; but not --version, because STREAMKEEPER_VERSION is what
// images and deployments call the version that they mean, and a replica would print its own and end, with exit code 0.
type cli struct {
	Config      kong.ConfigFlag  `name:"config" placeholder:"FILE" help:"YAML file with the names of flags as keys."`
	VersionFlag kong.VersionFlag `name:"version" env:"-" help:"Print the version."`

	Serve    serveCmd    `cmd:"" help:"One replica in front of a cluster."`
	Dev      devCmd      `cmd:"" help:"The same with an embedded log on local disk: nothing else to install."`
	List     listCmd     `cmd:"" help:"List streams groups."`
	Describe describeCmd `cmd:"" help:"Show streams groups: state, members, tasks, offsets and lag."`
	Delete   deleteCmd   `cmd:"" help:"Delete streams groups that have no members."`
	Log      logCmd      `cmd:"" help:"Print the record log, decoded, one record a line."`
	Backup   backupCmd   `cmd:"" help:"Write what the record log holds into a file; replicas may run meanwhile."`
	Restore  restoreCmd  `cmd:"" help:"Write the groups of a backup, or of a data directory, into a new log, where theirs was deleted."`
	Shards   shardsCmd   `cmd:"" help:"Show which replica owns which shard."`
	Forget   forgetCmd   `cmd:"" help:"Leave a replica that is gone for good out of Metadata."`
	Version  versionCmd  `cmd:"" help:"Print the version."`
}

// toldToEnd says that a command runs until it is told to end, so that a signal is no failure. All others have something to finish: who relies on the exit code, a
// job that makes backups for example, must not take one that was interrupted for one that is done.
func (c *cli) toldToEnd(command string) bool {
	return runs(command) || command == "log" && c.Log.Follow
}

// Exit codes: 1 for what went wrong, 64 (EX_USAGE of sysexits.h) for a command line, or a configuration, that can't be as it is: the same call would fail
// again. 2 would be the custom, but the Go runtime ends a process that crashes with it, and a service manager must not take one for the other.
const (
	exitFailure = 1
	exitUsage   = 64
)

func main() {
	// The first signal ends the context; stop gives the second one its usual effect, so that a stop that hangs can be ended.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process: what it returns is the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	exited := -1
	std := &stdio{out: stdout, err: stderr}
	c := &cli{}
	parser, err := kong.New(c, kong.Name("streamkeeper"),
		kong.Description("The Kafka Streams group coordinator (KIP-1071) as a service in front of any Kafka-compatible cluster."),
		kong.Configuration(config.Load), kong.DefaultEnvars(config.EnvPrefix), kong.Vars{"version": versionLine()},
		kong.Writers(stdout, stderr), kong.Exit(func(code int) { exited = code }),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(std))
	if err != nil {
		fmt.Fprintln(stderr, "streamkeeper:", err)
		return exitFailure
	}
	command, err := parser.Parse(args)
	if exited >= 0 { // --help
		return exited
	}
	std.unknown = config.UnknownVariables(parser.Model, os.Environ())
	if err != nil {
		fmt.Fprintln(stderr, "streamkeeper:", err)
		std.sayUnknown() // what is missing may be given there, by a wrong name
		fmt.Fprintln(stderr, "Try: streamkeeper "+helpOf(err))
		return exitUsage
	}
	name := command.Selected().Name
	if !runs(name) { // those say it in their log
		std.sayUnknown()
	}
	if err := command.Run(); err != nil {
		interrupted := errors.Is(err, context.Canceled) && ctx.Err() != nil
		switch {
		case interrupted && c.toldToEnd(name):
			return 0
		case interrupted:
			err = fmt.Errorf("interrupted: %w", err)
		}
		fmt.Fprintln(stderr, "streamkeeper:", err)
		if errors.As(err, &usageError{}) {
			return exitUsage
		}
		return exitFailure
	}
	return 0
}

// helpOf is how to get the help of the command that a line was meant for, as far as the line was understood.
func helpOf(err error) string {
	var wrong *kong.ParseError
	if errors.As(err, &wrong) && wrong.Context != nil {
		if command := wrong.Context.Selected(); command != nil {
			return command.Name + " --help"
		}
	}
	return "--help"
}

// runs says that a command runs a replica.
func runs(command string) bool { return command == "serve" || command == "dev" }

// usageError is a mistake in the command line or the configuration that is found before anything is done.
type usageError struct{ error }

// Unwrap returns what is wrong.
func (e usageError) Unwrap() error { return e.error }

// usage makes an error one of usage; nil stays nil.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// stdio is where commands write to.
type stdio struct {
	out, err io.Writer
	unknown  []string // config.UnknownVariables
}

// sayUnknown names the variables that have no effect.
func (s *stdio) sayUnknown() {
	for _, what := range s.unknown {
		fmt.Fprintln(s.err, "streamkeeper:", what)
	}
}

// logUnknown does so in the log.
func (s *stdio) logUnknown(log *slog.Logger) {
	for _, what := range s.unknown {
		log.Warn("there is no such setting", "what", what)
	}
}
