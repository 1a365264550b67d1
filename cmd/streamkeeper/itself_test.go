package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A replica that is to serve streamkeeper itself is refused before it takes a shard away from one that can serve it.
func TestAReplicaInFrontOfStreamkeeperIsRefused(t *testing.T) {
	d := startDev(t, t.TempDir())
	produce(t, d, 1)
	m := newMember(t, d, "orders")
	m.join(4)
	var out text
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	code := run(ctx, []string{"serve", "--bootstrap-servers", d.bootstrap, "--node-id", "1000002", "--listen", "127.0.0.1:0", "--admin-listen", "",
		"--data-dir", t.TempDir()}, &out, &out)
	if want := "--bootstrap-servers: [" + d.bootstrap + "] is streamkeeper, not the cluster behind it"; code != exitUsage || !strings.Contains(out.String(), want) {
		t.Errorf("exit %d, %s; want …%s…", code, out.String(), want)
	}
	m.beat(func(*kmsg.StreamsGroupHeartbeatRequest) {}) // still there
	if active := scrape(t, d)[`streamkeeper_num_partitions{state="active"}`]; active != 4 {
		t.Errorf("%v of 4 shards are served", active)
	}
}

// TestAReplicaInFrontOfItselfIsRefused: it would wait for itself, for as long as nothing else answers.
func TestAReplicaInFrontOfItselfIsRefused(t *testing.T) {
	var out text
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	code := run(ctx, []string{"serve", "--bootstrap-servers", "localhost:9292", "--admin-listen", "", "--data-dir", t.TempDir()}, &out, &out)
	if want := "--bootstrap-servers: localhost:9292 is this replica itself, not the cluster behind it"; code != exitUsage || !strings.Contains(out.String(), want) {
		t.Errorf("exit %d, %s; want …%s…", code, out.String(), want)
	}
}
