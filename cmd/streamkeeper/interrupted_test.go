package main

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/backup"
	"streamkeeper/internal/inspect"
)

// silent is an address that takes connections and answers nothing; connected has something for each of them.
func silent(t *testing.T) (address string, connected <-chan struct{}) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan struct{}, 100)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			came <- struct{}{}
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-ended
	})
	return ln.Addr().String(), came
}

// TestAnInterruptedCommandHasFailed: only what runs until it is told to end is done when it is.
func TestAnInterruptedCommandHasFailed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "backup")
	w, err := backup.Create(file, backup.Header{Topics: []backup.Topic{{Name: "__streams_groups", Partitions: 2, Records: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Add(0, 1, []byte("key"), []byte("value")), w.Close()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
	}{
		{"backup --to " + filepath.Join(t.TempDir(), "new"), exitFailure},
		{"restore --from " + file, exitFailure},
		{"list", exitFailure},
		{"describe orders", exitFailure},
		{"delete orders", exitFailure},
		{"shards", exitFailure},
		{"forget 1000001", exitFailure},
		{"log", exitFailure},
		{"log --follow", 0},
		{"serve --listen 127.0.0.1:0 --admin-listen= --data-dir " + t.TempDir(), 0},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			address, connected := silent(t)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			var out, said text
			ended := make(chan int, 1)
			go func() {
				ended <- run(ctx, append(strings.Fields(c.args), "--bootstrap-servers", address), &out, &said)
			}()
			select {
			case <-connected:
			case code := <-ended:
				t.Fatalf("it ended with %d: %s", code, said.String())
			}
			interrupt()
			select {
			case code := <-ended:
				if told := strings.Contains(said.String(), "streamkeeper: interrupted: "); code != c.code || told != (c.code != 0) {
					t.Errorf("exit %d, want %d; said %q", code, c.code, said.String())
				}
			case <-time.After(time.Minute):
				t.Error("it does not end")
			}
		})
	}
}

// TestCommandsPassOverAnAddressThatHangs: whoever answers is asked, also by those that read the log.
func TestCommandsPassOverAnAddressThatHangs(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.CreateTopic("__streams_groups", 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
		t.Fatal(err)
	}
	var addresses []string
	for range 7 {
		hanging, _ := silent(t)
		addresses = append(addresses, hanging)
	}
	d := &dev{bootstrap: strings.Join(append(addresses, c.ListenAddrs()...), ",")}
	for _, args := range [][]string{{"log", "--timeout", "8s"}, {"backup", "--timeout", "8s", "--to", filepath.Join(t.TempDir(), "new")}} {
		if out, said, code := execute(t, d, args...); code != 0 {
			t.Errorf("%v: exit %d: %s%s", args, code, out, said)
		} else if args[0] == "backup" && !strings.Contains(said, "There is no topic __streams_groups-topologies: the backup is without topology descriptions.") {
			t.Errorf("of descriptions nothing is said: %s", said)
		}
	}
}

// TestReadingTheLogEndsWhereNothingComes: --timeout bounds the silence of a leader, and neither the time that a long log takes nor that of who reads it.
func TestReadingTheLogEndsWhereNothingComes(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	const batches = 6 // more than one fetch takes
	for range batches {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "log", Value: make([]byte, 900_000)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	r, err := inspect.NewReader(t.Context(), cl, "log")
	if err != nil {
		t.Fatal(err)
	}
	bounds, err := r.Bounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	patient := &logReading{connection: &connection{Timeout: 2 * time.Second}, r: r, bounds: bounds}
	taken := 0
	if err := patient.partition(t.Context(), 0, func(inspect.Batch) error {
		if taken++; taken == 1 {
			time.Sleep(patient.Timeout * 3 / 2) // somebody looks at it
		}
		return nil
	}); err != nil || taken != batches {
		t.Errorf("%d of %d batches are read where somebody takes time to look at them: %v", taken, batches, err)
	}

	c.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return nil, errors.New("nothing comes"), true
	})
	_, said, code := execute(t, &dev{bootstrap: c.ListenAddrs()[0]}, "log", "--log-topic", "log", "--timeout", "1s")
	if code != exitFailure || !strings.Contains(said, "streamkeeper: nothing more of partition 0 came within 1s from") {
		t.Errorf("exit %d: %s", code, said)
	}
}
