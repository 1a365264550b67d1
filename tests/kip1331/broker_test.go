package kip1331

import "testing"

// TestAgainstABroker sends the same requests to a Kafka 4.4 broker and to streamkeeper, both with a plugin that fails as the group id says,
// and compares answers, calls of the plugin, and records.
func TestAgainstABroker(t *testing.T) {
	w := newWorld(t)
	t.Run("Push", func(t *testing.T) { pushStories(t, w) })
	t.Run("Solicitation", func(t *testing.T) { solicitStories(t, w) })
	t.Run("Describe", func(t *testing.T) { describeStories(t, w) })
	t.Run("Delete", func(t *testing.T) { deleteStories(t, w) })
	t.Run("Conversion", func(t *testing.T) { convertStories(t, w) })
	t.Run("Differences", func(t *testing.T) { differences(t, w) })
	t.Run("Random", func(t *testing.T) { randomSequences(t, w) })
}
