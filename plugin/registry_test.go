package plugin

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func factory(name string, open func(*Values) (Plugin, error), settings ...Setting) Factory {
	return Factory{Name: name, Summary: "s", Settings: settings, Open: open}
}

func TestRegistry(t *testing.T) {
	p := &puppet{}
	r, err := NewRegistry(
		factory("one", func(v *Values) (Plugin, error) { v.Int("limit", 1, 10); return p, v.Err() }, Setting{Name: "limit", Default: "5"}, Setting{Name: "other"}),
		factory("two-b", func(*Values) (Plugin, error) { return nil, nil }),
		factory("three", func(*Values) (Plugin, error) { return nil, errTest }),
	)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Names(); !slices.Equal(got, []string{"one", "two-b", "three", "none"}) || len(r.Factories()) != 3 {
		t.Errorf("%q", got)
	}
	if got, err := r.Open("one", nil); got != p || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := r.Open("none", nil); got != nil || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	for _, c := range []struct {
		name     string
		settings map[string]string
		want     string
	}{
		{"One", nil, `unknown topology description plugin "One": there are one, two-b, three, none`},
		{"", nil, `unknown topology description plugin "": there are one, two-b, three, none`},
		{"none", map[string]string{"a": "b"}, "there are settings for a topology description plugin, but the plugin is none"},
		{"one", map[string]string{"limits": "1", "Other": "x"}, `plugin one: unknown setting "Other", "limits": it has limit, other`},
		{"one", map[string]string{"limit": "11"}, `plugin one: limit="11": want a number between 1 and 10`},
		{"two-b", map[string]string{"x": "1"}, `plugin two-b: unknown setting "x": it has none`},
		{"two-b", nil, "plugin two-b: its Open returned nothing"},
		{"three", nil, "test"},
	} {
		if got, err := r.Open(c.name, c.settings); err == nil || err.Error() != c.want || got != nil {
			t.Errorf("Open(%q, %v) = %v, %v, want %s", c.name, c.settings, got, err, c.want)
		}
	}
}

func TestRegistryRefusesNames(t *testing.T) {
	open := func(*Values) (Plugin, error) { return nil, nil }
	for _, c := range []struct {
		factories []Factory
		want      string
	}{
		{[]Factory{factory("none", open)}, `plugin name "none" is taken`},
		{[]Factory{factory("a", open), factory("a", open)}, `plugin name "a" is taken`},
		{[]Factory{factory("A", open)}, "want lower-case letters"},
		{[]Factory{factory("a_b", open)}, "want lower-case letters"},
		{[]Factory{factory("", open)}, "want lower-case letters"},
		{[]Factory{factory("a", nil)}, "it has no Open"},
	} {
		if _, err := NewRegistry(c.factories...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

func TestValues(t *testing.T) {
	settings := []Setting{
		{Name: "text", Default: "d"}, {Name: "n", Default: "7"}, {Name: "ms", Default: "3000"}, {Name: "b", Default: "false"}, {Name: "url"},
		{Name: "secret", Secret: true},
	}
	with := func(given map[string]string) *Values {
		v, err := NewValues("p", settings, given)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	v := with(nil)
	if v.Text("text") != "d" || v.Int("n", 0, 9) != 7 || v.Milliseconds("ms", 0, time.Hour) != 3*time.Second || v.Bool("b") || v.Given("text") || v.Err() != nil {
		t.Errorf("defaults: %v", v.Err())
	}
	v = with(map[string]string{"text": "", "n": " 9 ", "b": "TRUE", "url": "https://h:1/p/"})
	if u := v.URL("url"); v.Text("text") != "" || v.Int("n", 0, 9) != 9 || !v.Bool("b") || u == nil || u.Path != "/p/" || !v.Given("n") || v.Err() != nil {
		t.Errorf("given: %v", v.Err())
	}
	for given, want := range map[string]string{
		"":                   "plugin p: url=\"\": it must be given",
		"ftp://h":            "want an address that begins with http:// or https://",
		"h:1":                "want an address that begins with http:// or https://",
		"http://":            "want an address that begins with http:// or https://",
		"http://h\x00":       "want an address that begins with http:// or https://",
		"http://h/?q=1":      "want an address without ? and #",
		"http://h/#f":        "want an address without ? and #",
		"http://u:geheim@h/": "plugin p: url: credentials don't belong into the address",
	} {
		v := with(map[string]string{"url": given})
		u := v.URL("url")
		if err := v.Err(); u != nil || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q: %v, want %s", given, err, want)
		}
	}
	v = with(map[string]string{"n": "x", "b": "yes", "secret": "geheim"})
	v.Int("n", 0, 9)
	v.Bool("b")
	v.Wrong("secret", "want better")
	want := "plugin p: n=\"x\": want a whole number\nplugin p: b=\"yes\": want true or false\nplugin p: secret: want better"
	if err := v.Err(); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	defer func() {
		if r := recover(); r == nil {
			t.Error("a setting that is not declared is read")
		}
	}()
	v.Text("undeclared")
}

func TestParseSettings(t *testing.T) {
	got, err := ParseSettings([]string{"a=b", " c =d=e", "f="})
	if err != nil || len(got) != 3 || got["a"] != "b" || got["c"] != "d=e" || got["f"] != "" {
		t.Errorf("%v, %v", got, err)
	}
	for _, c := range []struct{ in, want string }{
		{"ab", `plugin setting "ab": want name=value`}, {"=geheim", "plugin setting: there is no name before the ="}, {"a=c", "plugin setting a is given twice"},
	} {
		if _, err := ParseSettings([]string{"a=b", c.in}); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v", c.in, err)
		}
	}
}
