package main

import (
	"os"
	"testing"

	"streamkeeper/plugin"
	"streamkeeper/plugin/faulty"
)

// TestMain lets tests of other packages run this test binary as streamkeeper itself, with a plugin that no released binary has
// (kafkatest.NewFaultyStreamkeeper). The variable is kafkatest.AsProcess; that package is not imported here, so that these tests do not
// count among those that start JVMs.
func TestMain(m *testing.M) {
	if os.Getenv("STREAMKEEPER_TEST_PROCESS") != "" {
		morePlugins = []plugin.Factory{faulty.Factory()}
		main()
	}
	os.Exit(m.Run())
}
