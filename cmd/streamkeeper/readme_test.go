package main

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"streamkeeper/internal/config"
)

// The README's tables are what an operator goes by.
func TestReadmeNamesEveryCommandFlagAndSetting(t *testing.T) {
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	readme := string(b)
	parser, err := kong.New(&cli{})
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range parser.Model.Children {
		if !strings.Contains(readme, "`streamkeeper "+command.Name) {
			t.Errorf("the README lacks the command %s", command.Name)
		}
		if command.Name != "serve" {
			continue
		}
		for _, f := range command.Flags {
			if !strings.Contains(readme, "`--"+f.Name) {
				t.Errorf("the README lacks --%s", f.Name)
			}
			if f.HasDefault && f.Target.Kind() != reflect.Bool && !strings.Contains(readme, "`"+f.Default+"`") {
				t.Errorf("the README lacks the default %s of --%s", f.Default, f.Name)
			}
		}
	}
	for _, s := range config.Settings() {
		if !strings.Contains(readme, "`"+s.Name+"`") {
			t.Errorf("the README lacks the setting %s", s.Name)
		}
		if s.Default != "" && !strings.Contains(readme, s.Default) {
			t.Errorf("the README lacks the default %s of %s", s.Default, s.Name)
		}
	}
}
