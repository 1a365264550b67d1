package config

import (
	"slices"
	"testing"

	"github.com/alecthomas/kong"
)

func TestVariablesThatStandForNothing(t *testing.T) {
	p, err := kong.New(&testCLI{}, kong.Configuration(Load), kong.DefaultEnvars(EnvPrefix))
	if err != nil {
		t.Fatal(err)
	}
	got := UnknownVariables(p.Model, []string{
		"PATH=/bin", "STREAMKEEPER_NODE_ID=5000", "STREAMKEEPER_NODEID=5000", "STREAMKEEPER_BOOTSTRAP_SERVER=a:1", "STREAMKEEPER_BROKER_PORT=9293",
		"STREAMKEEPER_COLOUR=red", "STREAMKEEPERS=2", "STREAMKEEPER_CACHE=/tmp",
		"STREAMKEEPER_SERVICE_HOST=10.0.0.1", "STREAMKEEPER_0_SERVICE_PORT_KAFKA=9292", "STREAMKEEPER_PORT=tcp://10.0.0.1:9292", "STREAMKEEPER_PORT_9292_TCP_ADDR=10.0.0.1",
		"STREAMKEEPER_PORT_9292_TCP=tcp://10.0.0.1:9292",
	})
	want := []string{
		"the environment variable STREAMKEEPER_BOOTSTRAP_SERVER stands for no flag and has no effect; did you mean STREAMKEEPER_BOOTSTRAP_SERVERS?",
		"the environment variable STREAMKEEPER_BROKER_PORT stands for no flag and has no effect; did you mean STREAMKEEPER_BROKER_PORT_BASE?",
		"the environment variable STREAMKEEPER_COLOUR stands for no flag and has no effect",
		"the environment variable STREAMKEEPER_NODEID stands for no flag and has no effect; did you mean STREAMKEEPER_NODE_ID?",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}
