package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// network is a bridge in the test's own namespace, and a namespace for each replica, and for each JVM of applications, which are counted on from the replicas.
type network struct {
	t      *testing.T
	prefix string // of the names of what is made
	subnet string // the first three bytes
	spaces []string
}

// namePrefix begins the names of everything that is made here; the test's process id follows, so that what a dead test left can be told.
const namePrefix = "skc"

// newNetwork makes namespaces. why says what is missing where that isn't possible.
func newNetwork(t *testing.T, stages int) (n *network, why string) {
	if os.Getuid() != 0 {
		return nil, "not root"
	}
	for _, tool := range []string{"ip", "iptables"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, tool + " is not installed"
		}
	}
	removeLeftovers()
	pid := os.Getpid()
	n = &network{t: t, prefix: namePrefix + strconv.Itoa(pid), subnet: fmt.Sprintf("10.%d.%d", 64+pid/250%64, pid%250)}
	t.Cleanup(n.remove)
	bridge := n.prefix + "b"
	if err := run("ip", "link", "add", bridge, "type", "bridge"); err != nil {
		return nil, err.Error()
	}
	steps := [][]string{{"ip", "addr", "add", n.host(1) + "/24", "dev", bridge}, {"ip", "link", "set", bridge, "up"}}
	for i := range replicas + stages {
		space, outer, inner := fmt.Sprintf("%sn%d", n.prefix, i), fmt.Sprintf("%sv%d", n.prefix, i), fmt.Sprintf("%sw%d", n.prefix, i)
		n.spaces = append(n.spaces, space)
		in := []string{"ip", "-n", space}
		steps = append(steps,
			[]string{"ip", "netns", "add", space},
			[]string{"ip", "link", "add", outer, "type", "veth", "peer", "name", inner},
			[]string{"ip", "link", "set", outer, "master", bridge}, []string{"ip", "link", "set", outer, "up"},
			[]string{"ip", "link", "set", inner, "netns", space},
			append(in, "addr", "add", n.address(i)+"/24", "dev", inner),
			append(in, "link", "set", inner, "up"), append(in, "link", "set", "lo", "up"))
	}
	for _, s := range steps {
		if err := run(s...); err != nil {
			return nil, err.Error()
		}
	}
	for i := range n.spaces { // whether iptables works is another question than whether it is there
		if err := n.in(i, "iptables", "-A", "OUTPUT", "-d", "192.0.2.1", "-j", "DROP"); err != nil {
			return nil, err.Error()
		}
		n.heal(i)
	}
	return n, ""
}

func (n *network) host(last int) string { return fmt.Sprintf("%s.%d", n.subnet, last) }
func (n *network) address(i int) string { return n.host(11 + i) }

// stage is the number of a JVM's namespace.
func (n *network) stage(i int) int      { return replicas + i }
func (n *network) enter(i int) []string { return []string{"ip", "netns", "exec", n.spaces[i]} }
func (n *network) in(i int, argv ...string) error {
	return run(append(n.enter(i), argv...)...)
}

// rule is one rule of iptables in a namespace: the chain, and what follows it.
type rule []string

// apply cuts what the rules say.
func (n *network) apply(i int, rules ...rule) {
	for _, r := range rules {
		if err := n.in(i, append([]string{"iptables", "-w", "-A"}, r...)...); err != nil {
			n.t.Errorf("namespace %d: %v", i, err)
		}
	}
}

// heal takes all rules away.
func (n *network) heal(i int) {
	if err := n.in(i, "iptables", "-w", "-F"); err != nil {
		n.t.Errorf("namespace %d: %v", i, err)
	}
}

func (n *network) remove() {
	for _, s := range n.spaces {
		_ = run("ip", "netns", "del", s) // the veth pair goes with it
	}
	_ = run("ip", "link", "del", n.prefix+"b")
}

// removeLeftovers removes what tests that were killed have left.
func removeLeftovers() {
	dead := func(name string) bool {
		rest, ok := strings.CutPrefix(name, namePrefix)
		end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
		if !ok || end <= 0 {
			return false
		}
		_, err := os.Stat("/proc/" + rest[:end])
		return os.IsNotExist(err)
	}
	spaces, _ := exec.Command("ip", "netns", "list").Output()
	for line := range strings.Lines(string(spaces)) {
		if f := strings.Fields(line); len(f) > 0 && dead(f[0]) {
			_ = run("ip", "netns", "del", f[0])
		}
	}
	links, _ := exec.Command("ip", "-o", "link", "show", "type", "bridge").Output()
	for line := range strings.Lines(string(links)) {
		if f := strings.Fields(line); len(f) > 1 && dead(strings.TrimSuffix(f[1], ":")) {
			_ = run("ip", "link", "del", strings.TrimSuffix(f[1], ":"))
		}
	}
}

func run(argv ...string) error {
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Ways of cutting. ports is a list as iptables takes it, "9092,9093" or "9292:9299".

// cutFrom drops what goes to ports elsewhere and comes from there.
func cutFrom(ports string, way direction, target ...string) []rule {
	var rules []rule
	if way != inwards {
		rules = append(rules, append(rule{"OUTPUT", "-p", "tcp", "-m", "multiport", "--dports", ports, "-j"}, target...))
	}
	if way != outwards {
		in := target
		if target[0] == "REJECT" {
			in = []string{"DROP"} // a reset is for whoever sends
		}
		rules = append(rules, append(rule{"INPUT", "-p", "tcp", "-m", "multiport", "--sports", ports, "-j"}, in...))
	}
	return rules
}

// cutAt drops what comes to our own ports and goes from there.
func cutAt(ports string, way direction) []rule {
	var rules []rule
	if way != outwards {
		rules = append(rules, rule{"INPUT", "-p", "tcp", "-m", "multiport", "--dports", ports, "-j", "DROP"})
	}
	if way != inwards {
		rules = append(rules, rule{"OUTPUT", "-p", "tcp", "-m", "multiport", "--sports", ports, "-j", "DROP"})
	}
	return rules
}

// cutFromHost drops what goes to a host and comes from there.
func cutFromHost(host string, way direction) []rule {
	var rules []rule
	if way != inwards {
		rules = append(rules, rule{"OUTPUT", "-d", host, "-j", "DROP"})
	}
	if way != outwards {
		rules = append(rules, rule{"INPUT", "-s", host, "-j", "DROP"})
	}
	return rules
}

// lose drops some of all packets.
func lose(part float64) []rule {
	return []rule{
		{"INPUT", "-p", "tcp", "-m", "statistic", "--mode", "random", "--probability", fmt.Sprint(part), "-j", "DROP"},
		{"OUTPUT", "-p", "tcp", "-m", "statistic", "--mode", "random", "--probability", fmt.Sprint(part), "-j", "DROP"},
	}
}

// direction is seen from the replica.
type direction int

const (
	bothWays direction = iota
	inwards
	outwards
)

func (d direction) String() string { return [...]string{"both ways", "inwards", "outwards"}[d] }
