package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/internal/admin"
	"streamkeeper/internal/config"
	"streamkeeper/internal/inspect"
)

// shardsPath is where the admin address of a replica tells how far its projection is.
const shardsPath = "/shards"

// shardsBodyMax bounds what is read of it: a line per partition.
const shardsBodyMax = 16 << 20

type shardsCmd struct {
	BootstrapServers []string      `name:"bootstrap-servers" placeholder:"HOST:PORT" help:"The cluster, or streamkeeper in front of it. 127.0.0.1:9292 if neither this nor --admin is given."`
	Timeout          time.Duration `name:"timeout" default:"30s" help:"How long to try."`
	output
	LogTopic string   `name:"log-topic" default:"__streams_groups" help:"The record log."`
	Admin    []string `name:"admin" placeholder:"HOST:PORT" help:"Ask this replica's admin address how far it has read; repeatable. Without --bootstrap-servers also who owns what, as these replicas have read it: no cluster is asked."`
}

// shardRow is one line: who owns the shard, from the log; how far replicas have read it, from their admin addresses.
type shardRow struct {
	Partition  int32          `json:"partition"`
	Owner      *int32         `json:"owner"` // node id; null: nobody
	Address    string         `json:"address,omitempty"`
	Generation *int64         `json:"generation"`
	Released   bool           `json:"released,omitempty"`
	Claimed    *time.Time     `json:"written"` // when the ownership record was written last
	End        int64          `json:"end"`
	Replicas   []shardReplica `json:"replicas,omitempty"`
	// Newer says that the last claim is of a newer program, and that owner and generation are those before it.
	Newer string `json:"newer,omitempty"`
}

type shardReplica struct {
	NodeID   int32  `json:"nodeId"`
	Serving  bool   `json:"serving"`
	Position int64  `json:"position"`
	Lag      int64  `json:"lag"`
	Reading  string `json:"reading,omitempty"`
	// Error says why the replica reads the shard no further; "" where it does.
	Error string `json:"error,omitempty"`
	// Declined says why the replica leaves the shard to others; "" where it does not.
	Declined string `json:"declined,omitempty"`
}

// shardStatus is what a replica answers at shardsPath.
type shardStatus struct {
	NodeID int32           `json:"nodeId"`
	Shards []shardPosition `json:"shards"`
}

type shardPosition struct {
	Partition int32  `json:"partition"`
	Serving   bool   `json:"serving"`
	Position  int64  `json:"position"`          // the first offset that its projection has not applied
	Reading   string `json:"reading,omitempty"` // why it is being read; "" where it has been read to its end
	Left      int64  `json:"left,omitempty"`    // offsets up to the end, as far as the log has told where that is
	Error     string `json:"error,omitempty"`
	Declined  string `json:"declined,omitempty"` // why this replica can't serve it, and leaves it to others
	// Owner is who claimed the shard last, as far as this replica has read; nil where nobody has.
	Owner *shardOwner `json:"owner,omitempty"`
}

// shardOwner is an ownership record.
type shardOwner struct {
	NodeID     int32  `json:"nodeId"`
	Address    string `json:"address"`
	Generation int64  `json:"generation"`
	Released   bool   `json:"released,omitempty"`
	Written    int64  `json:"written"` // ms since 1970, by the owner's clock
}

// Run asks the cluster for owners and ends, and the replicas for their positions. A replica that does not answer hides neither the owners nor the other
// replicas; the exit code and the error still say that something is missing.
func (c *shardsCmd) Run(ctx context.Context, s *stdio) error {
	if c.Timeout <= 0 {
		return usage(fmt.Errorf("--timeout: %v is no time to try", c.Timeout))
	}
	for _, address := range c.Admin {
		if _, _, err := config.SplitAddress(adminAddress(address)); err != nil {
			return usage(fmt.Errorf("--admin: %w", err))
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, errTimeout)
	defer cancel()
	replicas, errs := c.ask(ctx)
	shards := readShards(replicas)
	if len(c.BootstrapServers) > 0 || len(c.Admin) == 0 {
		asked := connection{BootstrapServers: c.BootstrapServers, Timeout: c.Timeout}
		if len(asked.BootstrapServers) == 0 {
			asked.BootstrapServers = []string{defaultBootstrap}
		}
		if err := asked.with(ctx, func(ctx context.Context, a *admin.Client) error {
			r, err := inspect.NewReader(ctx, a.Kafka(), c.LogTopic)
			if err != nil {
				return err
			}
			shards, err = r.Shards(ctx)
			return err
		}); err != nil {
			return errors.Join(append([]error{err}, errs...)...)
		}
	}
	if len(shards) == 0 { // without a cluster, and no replica has answered
		return errors.Join(errs...)
	}
	rows := shardRows(shards, replicas)
	return errors.Join(append([]error{c.write(s.out, rows, func(w io.Writer) error { return writeShards(w, rows) })}, errs...)...)
}

// ask asks all replicas at once, so that one that hangs costs no more than the time that there is.
func (c *shardsCmd) ask(ctx context.Context) (replicas []shardStatus, errs []error) {
	answers, failed := make([]shardStatus, len(c.Admin)), make([]error, len(c.Admin))
	var wg sync.WaitGroup
	for i, address := range c.Admin {
		wg.Go(func() { answers[i], failed[i] = askReplica(ctx, address) })
	}
	wg.Wait()
	for i := range c.Admin {
		if failed[i] != nil {
			errs = append(errs, failed[i])
			continue
		}
		replicas = append(replicas, answers[i])
	}
	return replicas, errs
}

// readShards is who owns what as the replicas have read it: the newest claim that one of them knows.
func readShards(replicas []shardStatus) []inspect.Shard {
	known := map[int32]inspect.Shard{}
	for _, r := range replicas {
		for _, p := range r.Shards {
			s := known[p.Partition]
			s.Partition, s.End = p.Partition, max(s.End, p.Position+p.Left)
			if o := p.Owner; o != nil && (s.Owner == nil || s.Owner.Generation < o.Generation || s.Owner.Generation == o.Generation && s.Owner.Timestamp < o.Written) {
				s.Owner = &eventlog.Owner{
					Ownership:  eventlog.Ownership{NodeID: o.NodeID, Address: o.Address, Released: o.Released},
					Generation: o.Generation, Timestamp: o.Written,
				}
			}
			known[p.Partition] = s
		}
	}
	return slices.SortedFunc(maps.Values(known), func(a, b inspect.Shard) int { return cmp.Compare(a.Partition, b.Partition) })
}

// adminAddress is an admin address without the scheme that may be before it.
func adminAddress(given string) string {
	return strings.TrimSuffix(strings.TrimPrefix(given, "http://"), "/")
}

func askReplica(ctx context.Context, address string) (shardStatus, error) {
	url := "http://" + adminAddress(address) + shardsPath
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return shardStatus{}, fmt.Errorf("--admin: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return shardStatus{}, fmt.Errorf("--admin: %w", err)
	}
	defer resp.Body.Close()
	var st shardStatus
	if resp.StatusCode != http.StatusOK {
		return shardStatus{}, fmt.Errorf("--admin: %s answers %s", url, resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, shardsBodyMax)).Decode(&st); err != nil {
		return shardStatus{}, fmt.Errorf("--admin: %s: %w", url, err)
	}
	return st, nil
}

func shardRows(shards []inspect.Shard, replicas []shardStatus) []shardRow {
	rows := make([]shardRow, 0, len(shards))
	for _, s := range shards {
		row := shardRow{Partition: s.Partition, End: s.End}
		if o := s.Owner; o != nil {
			at := time.UnixMilli(o.Timestamp).UTC()
			row.Claimed, row.Generation, row.Address, row.Released = &at, &o.Generation, o.Address, o.Released
			if !o.Released {
				row.Owner = &o.NodeID
			}
		}
		if s.Newer != nil {
			row.Newer = s.Newer.Error()
			row.Owner, row.Address = nil, "" // the one before is not the owner any more
		}
		for _, r := range replicas {
			for _, p := range r.Shards {
				if p.Partition == s.Partition {
					row.Replicas = append(row.Replicas, shardReplica{r.NodeID, p.Serving, p.Position, max(s.End-p.Position, 0), p.Reading, p.Error, p.Declined})
				}
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func writeShards(w io.Writer, rows []shardRow) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SHARD\tOWNER\tADDRESS\tGENERATION\tWRITTEN\tEND\tREPLICA\tSERVING\tPOSITION\tLAG")
	for _, r := range rows {
		owner, generation, written := "none", "-", "-"
		if r.Newer != "" {
			owner = "newer"
		}
		if r.Owner != nil {
			owner = fmt.Sprint(*r.Owner)
		}
		if r.Generation != nil {
			generation = fmt.Sprint(*r.Generation)
		}
		if r.Claimed != nil {
			written = r.Claimed.Format(time.RFC3339)
		}
		address := r.Address
		if address == "" || r.Released {
			address = "-"
		}
		head := fmt.Sprintf("%d\t%s\t%s\t%s\t%s\t%d", r.Partition, owner, address, generation, written, r.End)
		if len(r.Replicas) == 0 {
			fmt.Fprintf(t, "%s\t-\t-\t-\t-\n", head)
		}
		for _, p := range r.Replicas {
			serving := "no"
			if p.Error != "" { // and not read any further
				serving = "refused"
			} else if p.Serving {
				serving = "yes"
			} else if p.Declined != "" {
				serving = "declined"
			} else if p.Reading != "" {
				serving = "reading: " + p.Reading
			}
			fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%d\n", head, p.NodeID, serving, p.Position, p.Lag)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range rows { // sentences, which would tear the table apart
		if r.Newer != "" {
			fmt.Fprintf(w, "\n%s\n", r.Newer)
		}
		for _, p := range r.Replicas {
			if p.Error != "" {
				fmt.Fprintf(w, "\nShard %d is refused by %d: %s\n", r.Partition, p.NodeID, p.Error)
			}
		}
	}
	writeDeclined(w, rows)
	return nil
}

// writeDeclined says which replica leaves which shards to others, and why: a sentence for each reason, which many shards can have in common.
func writeDeclined(w io.Writer, rows []shardRow) {
	type reason struct {
		node int32
		why  string
	}
	var order []reason
	by := map[reason][]string{}
	for _, r := range rows {
		for _, p := range r.Replicas {
			if p.Declined == "" || p.Error != "" || p.Serving {
				continue
			}
			k := reason{p.NodeID, p.Declined}
			if by[k] == nil {
				order = append(order, k)
			}
			by[k] = append(by[k], fmt.Sprint(r.Partition))
		}
	}
	for _, k := range order {
		fmt.Fprintf(w, "\nLeft to others by %d: shards %s: %s\n", k.node, strings.Join(by[k], ", "), k.why)
	}
}
