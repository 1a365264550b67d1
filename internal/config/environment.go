package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// injected are variables that Kubernetes sets in each pod for a service whose name begins with ours, and Docker for a link: STREAMKEEPER_SERVICE_HOST,
// STREAMKEEPER_0_SERVICE_PORT_KAFKA, STREAMKEEPER_PORT_9292_TCP_ADDR.
var injected = regexp.MustCompile(`_SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?$|_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$`)

// ofTests are the variables of the project's own tests, which the processes that they start inherit.
var ofTests = []string{EnvPrefix + "_CACHE", EnvPrefix + "_RACE", EnvPrefix + "_SKEW_FILE", EnvPrefix + "_TEST_PROCESS"}

// UnknownVariables says which variables of environ ("NAME=value") begin as ours do and are those of no flag of any command, with the nearest that is, ascending. They
// have no effect. That is no error, because others set variables of that prefix, too: whoever names a service streamkeeper, for example.
func UnknownVariables(app *kong.Application, environ []string) (said []string) {
	known := []string{}
	_ = kong.Visit(app, func(n kong.Visitable, next kong.Next) error {
		if flag, ok := n.(*kong.Flag); ok {
			for _, env := range flag.Envs {
				known = append(known, strings.TrimPrefix(env, EnvPrefix+"_"))
			}
		}
		return next(nil)
	})
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		rest, ours := strings.CutPrefix(name, EnvPrefix+"_")
		switch {
		case !ours, slices.Contains(known, rest), slices.Contains(ofTests, name), injected.MatchString(name),
			strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://"): // injected as well, and not where it is a number
			continue
		}
		near := ""
		if best := nearest(rest, known, len(rest)/2); best != "" { // half of it may be missing: BROKER_PORT
			near = fmt.Sprintf("; did you mean %s_%s?", EnvPrefix, best)
		}
		said = append(said, fmt.Sprintf("the environment variable %s stands for no flag and has no effect%s", name, near))
	}
	slices.Sort(said)
	return said
}

// nearest is the name that was probably meant; "" where none is within so many changes of a letter.
func nearest(name string, names []string, within int) string {
	best, distance := "", within+1
	for _, n := range names {
		if d := editDistance(name, n); d < distance {
			best, distance = n, d
		}
	}
	return best
}
