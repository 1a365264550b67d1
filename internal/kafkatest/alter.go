package kafkatest

import (
	"fmt"
	"os"
)

// SetHeapMB gives the brokers another heap, in MiB, from their next start on.
func (c *Cluster) SetHeapMB(mb int) { c.opts.HeapMB = mb }

// SetProperty gives broker i another value of a property of its file, from its next start on.
func (c *Cluster) SetProperty(i int, name, value string) {
	c.tb.Helper()
	f, err := os.OpenFile(c.node(i).properties(), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		c.tb.Fatal(err)
	}
	defer f.Close()
	// The last line of a name is the one that counts.
	if _, err := fmt.Fprintf(f, "\n%s=%s\n", name, value); err != nil {
		c.tb.Fatal(err)
	}
}
