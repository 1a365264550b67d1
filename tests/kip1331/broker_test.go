package kip1331

import "testing"

// TestAgainstABroker sends the same requests to a Kafka 4.4 broker and to streamkeeper, both with a plugin that fails as the group id says,
// and compares answers, calls of the plugin, and records.
func TestAgainstABroker(t *testing.T) {
	w := newWorld(t)
	t.Run("Push", func(t *testing.T) { pushStories(t, w) })
}
