package main

import (
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"streamkeeper/internal/config"
)

// The examples of docs/deploy are started by nobody here, so at least their command lines must be ones that streamkeeper takes, and
// their ports those that it opens.

const deploy = "../../docs/deploy/"

// parsed is the command line of a serve that was given these arguments.
func parsed(t *testing.T, args []string) *cli {
	t.Helper()
	c := &cli{}
	parser, err := kong.New(c, kong.Configuration(config.Load), kong.DefaultEnvars(config.EnvPrefix), kong.Exit(func(int) {}))
	if err != nil {
		t.Fatal(err)
	}
	k, err := parser.Parse(args)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	if k.Command() != "serve" {
		t.Fatalf("%q is the command %q", args, k.Command())
	}
	if _, err := c.Serve.Check(); err != nil {
		t.Errorf("%q: %v", args, err)
	}
	if err := c.Serve.Upstream.Check(); err != nil {
		t.Errorf("%q: %v", args, err)
	}
	return c
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(deploy + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestSystemdUnit(t *testing.T) {
	unit := read(t, "streamkeeper.service")
	start := regexp.MustCompile(`(?m)^ExecStart=(\S+) (.*)$`).FindStringSubmatch(unit)
	if start == nil {
		t.Fatal("no ExecStart")
	}
	line := strings.Fields(start[2])
	file := slices.Index(line, "/etc/streamkeeper.yaml")
	if file < 0 {
		t.Fatalf("%q has no file of settings", line)
	}
	line[file] = deploy + "streamkeeper.yaml"
	t.Setenv("STREAMKEEPER_ADVERTISE", "keeper-1.example.org") // as /etc/default/streamkeeper has it
	c := parsed(t, line)
	if len(c.Serve.BootstrapServers) != 2 || c.Serve.Advertise == "" || c.Serve.Set["group.streams.session.timeout.ms"] == "" {
		t.Errorf("of the file and the environment came %+v", c.Serve)
	}
	for _, address := range []string{c.Serve.Listen, c.Serve.AdminListen} {
		if !strings.HasPrefix(address, "0.0.0.0:") {
			t.Errorf("nobody elsewhere reaches %s", address)
		}
	}
	if c.Serve.DataDir != "/var/lib/streamkeeper" || !strings.Contains(unit, "StateDirectory=streamkeeper\n") {
		t.Errorf("the data directory %s is not the state directory", c.Serve.DataDir)
	}
	grace := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindStringSubmatch(unit)
	if grace == nil {
		t.Fatal("no TimeoutStopSec")
	}
	if seconds, _ := strconv.Atoi(grace[1]); time.Duration(seconds)*time.Second < c.stopMax() {
		t.Errorf("it is killed after %d s; a stop may take %v", seconds, c.stopMax())
	}
	// It is ready, and well, when it says so; it says so where it is asked to (cmd: systemd_test.go), and may then not be told apart from one that hangs.
	watchdog := regexp.MustCompile(`(?m)^WatchdogSec=(\d+)$`).FindStringSubmatch(unit)
	abort := regexp.MustCompile(`(?m)^TimeoutAbortSec=(\d+)$`).FindStringSubmatch(unit)
	if watchdog == nil || watchdog[1] == "0" || abort == nil {
		t.Fatal("nobody watches it")
	}
	noticed, _ := strconv.Atoi(watchdog[1])
	killed, _ := strconv.Atoi(abort[1])
	hangs(t, time.Duration(noticed)*time.Second, time.Duration(killed)*time.Second)
	// A wrong configuration is not started again and again.
	if !strings.Contains(unit, "\nRestartPreventExitStatus="+strconv.Itoa(exitUsage)+"\n") {
		t.Errorf("it is started again after exit code %d", exitUsage)
	}
	for _, line := range []string{"Type=notify", "Restart=always", "StartLimitIntervalSec=0", "NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet=", "DynamicUser=yes", "SystemCallFilter=@system-service"} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("it lacks %s", line)
		}
	}
	for _, name := range regexp.MustCompile(config.EnvPrefix+`_[A-Z_]+`).FindAllString(unit, -1) {
		flagOfEnv(t, name)
	}
	verified(t, unit)
}

// hangs checks how long clients hang on a process that hangs: until that is noticed and the process is gone. docs/operations.md names the sum.
func hangs(t *testing.T, noticed, killed time.Duration) {
	t.Helper()
	const (
		most    = 20 * time.Second
		session = 6 * time.Second // of the ownership group; until then the process may go on as if nothing had been
	)
	if noticed <= session || killed <= 0 || noticed+killed > most {
		t.Errorf("a process that hangs is noticed after %v, and killed %v later; want more than %v, and %v in all at most", noticed, killed, session, most)
	}
}

// verified has systemd itself read the unit, where it is installed: a misspelt directive would be ignored without a word. It starts nothing.
func verified(t *testing.T, unit string) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("systemd-analyze is not here: the names of the unit's directives are not checked")
		return
	}
	self, err := os.Executable() // the program must be there
	if err != nil {
		t.Fatal(err)
	}
	verify := func(unit string) string {
		name := filepath.Join(t.TempDir(), "streamkeeper.service")
		if err := os.WriteFile(name, []byte(strings.ReplaceAll(unit, "/usr/local/bin/streamkeeper", self)), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", name).CombinedOutput()
		if err != nil && len(out) == 0 {
			t.Fatal(err)
		}
		return string(out)
	}
	if said := verify(unit); said != "" {
		t.Errorf("systemd does not take the unit as it is:\n%s", said)
	}
	if said := verify(strings.Replace(unit, "\nWatchdogSec=", "\nWatchdogSeconds=", 1)); !strings.Contains(said, "WatchdogSeconds") {
		t.Errorf("systemd takes a misspelt directive: %s", said)
	}
}

// stopMax is how long a stop with this command line may take.
func (c *cli) stopMax() time.Duration {
	return stopWithin(c.Serve.ShutdownTimeout)
}

// flagOfEnv is the flag that an environment variable gives.
func flagOfEnv(t *testing.T, name string) {
	t.Helper()
	flag := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, config.EnvPrefix+"_"), "_", "-"))
	parser, err := kong.New(&cli{})
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range parser.Model.Children {
		if command.Name == "serve" && slices.ContainsFunc(command.Flags, func(f *kong.Flag) bool { return f.Name == flag }) {
			return
		}
	}
	t.Errorf("%s stands for --%s, which serve does not have", name, flag)
}

func TestContainerFile(t *testing.T) {
	file := read(t, "Containerfile")
	cmd := regexp.MustCompile(`(?m)^CMD \[(.*)\]$`).FindStringSubmatch(file)
	if cmd == nil {
		t.Fatal("no CMD")
	}
	var args []string
	for _, quoted := range regexp.MustCompile(`"([^"]*)"`).FindAllStringSubmatch(cmd[1], -1) {
		args = append(args, quoted[1])
	}
	c := parsed(t, append(args, "--bootstrap-servers=broker:9092", "--advertise=keeper"))
	if !strings.Contains(file, "VOLUME "+c.Serve.DataDir+"\n") {
		t.Errorf("%s is no volume", c.Serve.DataDir)
	}
	if goVersion := "FROM golang:" + goDirective(t); !strings.Contains(file, goVersion) {
		t.Errorf("it is not built with the Go of go.mod: want %q", goVersion)
	}
}

// goDirective is go.mod's Go version without the patch level.
func goDirective(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(b)
	if m == nil {
		t.Fatal("go.mod names no version")
	}
	return string(m[1])
}

// kubernetesObject is the part of Kubernetes objects that the example's ports and command line are in.
type kubernetesObject struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Spec     struct {
		Ports       []struct{ Port int }
		ServiceName string `yaml:"serviceName"`
		Selector    struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		}
		MaxUnavailable int `yaml:"maxUnavailable"`
		Replicas       int
		Template       struct {
			Spec struct {
				TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
				Containers                    []struct {
					Args  []string
					Env   []struct{ Name, Value string }
					Ports []struct {
						ContainerPort int `yaml:"containerPort"`
					}
					ReadinessProbe struct {
						PeriodSeconds    int `yaml:"periodSeconds"`
						FailureThreshold int `yaml:"failureThreshold"`
					} `yaml:"readinessProbe"`
					LivenessProbe struct {
						PeriodSeconds                 int `yaml:"periodSeconds"`
						FailureThreshold              int `yaml:"failureThreshold"`
						TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
					} `yaml:"livenessProbe"`
				}
			}
		}
	}
}

func TestKubernetesExample(t *testing.T) {
	decoder := yaml.NewDecoder(strings.NewReader(read(t, "kubernetes.yaml")))
	objects := map[string]kubernetesObject{}
	for {
		var o kubernetesObject
		if err := decoder.Decode(&o); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		objects[o.Kind] = o
	}
	set, service := objects["StatefulSet"], objects["Service"]
	if len(set.Spec.Template.Spec.Containers) != 1 || set.Spec.ServiceName != service.Metadata.Name {
		t.Fatalf("the StatefulSet %+v does not belong to the service %+v", set.Metadata, service.Metadata)
	}
	container := set.Spec.Template.Spec.Containers[0]
	expand := strings.NewReplacer("$(POD_NAME)", set.Metadata.Name+"-0", "$(POD_INDEX)", "0").Replace
	var args []string
	for _, a := range container.Args {
		args = append(args, expand(a))
	}
	for _, e := range container.Env {
		if strings.HasPrefix(e.Name, config.EnvPrefix+"_") {
			flagOfEnv(t, e.Name)
			flag := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(e.Name, config.EnvPrefix+"_"), "_", "-"))
			args = append(args, "--"+flag+"="+expand(e.Value))
		}
	}
	c := parsed(t, args)
	effective, err := c.Serve.Check()
	if err != nil {
		t.Fatal(err)
	}
	if want := set.Metadata.Name + "-0." + service.Metadata.Name + "." + set.Metadata.Namespace + ".svc"; effective.AdvertiseHost != want {
		t.Errorf("it advertises %q; the name of the pod is %q", effective.AdvertiseHost, want)
	}
	if c.Serve.NodeID != 1000000 {
		t.Errorf("the first replica's node id is %d", c.Serve.NodeID)
	}
	if grace := time.Duration(set.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second; grace < c.stopMax() {
		t.Errorf("it is killed after %v; a stop may take %v", grace, c.stopMax())
	}
	if seen := time.Duration(container.ReadinessProbe.PeriodSeconds*container.ReadinessProbe.FailureThreshold) * time.Second; seen == 0 || c.Serve.ShutdownDelay <= seen {
		t.Errorf("it begins to hand over %v after /readyz fails; the probe sees that after %v", c.Serve.ShutdownDelay, seen)
	}
	live := container.LivenessProbe
	hangs(t, time.Duration(live.PeriodSeconds*live.FailureThreshold)*time.Second, time.Duration(live.TerminationGracePeriodSeconds)*time.Second)
	if budget := objects["PodDisruptionBudget"].Spec; budget.MaxUnavailable != 1 || !maps.Equal(budget.Selector.MatchLabels, set.Spec.Selector.MatchLabels) || len(budget.Selector.MatchLabels) == 0 {
		t.Errorf("the disruption budget %+v does not keep all replicas but one of %v", budget, set.Spec.Selector.MatchLabels)
	}
	var served, opened []int
	for _, p := range service.Spec.Ports {
		served = append(served, p.Port)
	}
	for _, p := range container.Ports {
		opened = append(opened, p.ContainerPort)
	}
	want := []int{9292, effective.BrokerPortBase, effective.BrokerPortBase + 1, effective.BrokerPortBase + 2, 9291}
	if !slices.Equal(served, want) || !slices.Equal(opened, want) {
		t.Errorf("ports of the service %v, of the container %v, want %v", served, opened, want)
	}
}
