package plugin

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Setting is one setting of a plugin, given as name=value.
type Setting struct {
	Name    string
	Default string // "": none
	Doc     string // one line
	Secret  bool   // its value never appears in an error or in a listing
}

// Values are the settings of one plugin, with defaults. Its methods note what is wrong instead of returning an error; Err returns all
// of it. A method panics when it is asked for a setting that the plugin has not declared.
type Values struct {
	plugin   string
	settings []Setting
	given    map[string]string
	errs     []error
}

// NewValues checks the names of the given settings against those that there are. The error names each unknown one and what
// there is.
func NewValues(plugin string, settings []Setting, given map[string]string) (*Values, error) {
	v := &Values{plugin: plugin, settings: settings, given: given}
	var unknown []string
	for name := range given {
		if !slices.ContainsFunc(settings, func(s Setting) bool { return s.Name == name }) {
			unknown = append(unknown, strconv.Quote(name))
		}
	}
	if len(unknown) == 0 {
		return v, nil
	}
	slices.Sort(unknown)
	known := make([]string, 0, len(settings))
	for _, s := range settings {
		known = append(known, s.Name)
	}
	has := "it has " + strings.Join(known, ", ")
	if len(known) == 0 {
		has = "it has none"
	}
	return nil, fmt.Errorf("plugin %s: unknown setting %s: %s", plugin, strings.Join(unknown, ", "), has)
}

// Text returns a setting as it was given, or its default.
func (v *Values) Text(name string) string {
	value, ok := v.given[name]
	for _, s := range v.settings {
		if s.Name == name {
			if ok {
				return value
			}
			return s.Default
		}
	}
	panic(fmt.Sprintf("plugin %s reads the setting %q, which it has not declared", v.plugin, name))
}

// Given says whether the setting was given and is not empty.
func (v *Values) Given(name string) bool { return v.given[name] != "" }

// Int returns a setting that is a whole number between lowest and highest.
func (v *Values) Int(name string, lowest, highest int64) int64 {
	text := strings.TrimSpace(v.Text(name))
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		v.Wrong(name, "want a whole number")
		return 0
	}
	if n < lowest || n > highest {
		limit := fmt.Sprintf("between %d and %d", lowest, highest)
		if highest == math.MaxInt64 {
			limit = fmt.Sprintf("of at least %d", lowest)
		}
		v.Wrong(name, "want a number "+limit)
	}
	return n
}

// Milliseconds returns a setting whose number is a time in milliseconds.
func (v *Values) Milliseconds(name string, lowest, highest time.Duration) time.Duration {
	return time.Duration(v.Int(name, lowest.Milliseconds(), highest.Milliseconds())) * time.Millisecond
}

// Bool returns a setting that is true or false.
func (v *Values) Bool(name string) bool {
	switch strings.ToLower(strings.TrimSpace(v.Text(name))) {
	case "true":
		return true
	case "false":
	default:
		v.Wrong(name, "want true or false")
	}
	return false
}

// URL returns a setting that is an http or https address without a query, a fragment and credentials; nil with an error
// noted otherwise.
func (v *Values) URL(name string) *url.URL {
	u, err := url.Parse(strings.TrimSpace(v.Text(name)))
	switch {
	case v.Text(name) == "":
		v.Wrong(name, "it must be given, e.g. https://catalogue.example.com/api")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		v.Wrong(name, "want an address that begins with http:// or https://")
	case u.User != nil:
		v.errs = append(v.errs, fmt.Errorf("plugin %s: %s: credentials don't belong into the address", v.plugin, name)) // not repeated
	case u.RawQuery != "" || u.Fragment != "":
		v.Wrong(name, "want an address without ? and #")
	default:
		return u
	}
	return nil
}

// Wrong notes that a setting's value can't be used; what says what is wanted.
func (v *Values) Wrong(name, what string) {
	i := slices.IndexFunc(v.settings, func(s Setting) bool { return s.Name == name })
	if i >= 0 && v.settings[i].Secret {
		v.errs = append(v.errs, fmt.Errorf("plugin %s: %s: %s", v.plugin, name, what))
		return
	}
	v.errs = append(v.errs, fmt.Errorf("plugin %s: %s=%.200q: %s", v.plugin, name, v.Text(name), what))
}

// Err returns all that was noted, or nil.
func (v *Values) Err() error { return errors.Join(v.errs...) }

// ParseSettings reads name=value pairs. A name given twice, an empty name and a pair without = are errors that name the pair.
func ParseSettings(pairs []string) (map[string]string, error) {
	values := make(map[string]string, len(pairs))
	for _, p := range pairs {
		name, value, ok := strings.Cut(p, "=")
		name = strings.TrimSpace(name)
		switch {
		case !ok:
			return nil, fmt.Errorf("plugin setting %.60q: want name=value", p)
		case name == "":
			return nil, errors.New("plugin setting: there is no name before the =") // the value may be a secret
		}
		if _, twice := values[name]; twice {
			return nil, fmt.Errorf("plugin setting %s is given twice", name)
		}
		values[name] = value
	}
	return values, nil
}
