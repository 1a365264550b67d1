package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/eventlog"
)

// GroupMember is a member of the ownership group as its coordinator describes it.
type GroupMember struct {
	MemberID   string
	NodeID     int32  // -1 where the client id is not a replica's
	Address    string // "" likewise
	ClientID   string
	ClientHost string  // Java's form, "/10.0.0.1"
	Partitions []int32 // assigned, ascending; empty while the group rebalances
	// Declines are the partitions that the member said it can't serve when it joined last, and why, in a word.
	Declines map[int32]string
}

// clientIDPrefix begins the client id of every replica.
const clientIDPrefix = "sk/"

// memberClientID is the client id that carries a replica's node id and address, so that Kafka's own
// kafka-consumer-groups shows who is who.
func memberClientID(nodeID int32, address string) string {
	return clientIDPrefix + strconv.Itoa(int(nodeID)) + "@" + address
}

// parseMemberClientID undoes memberClientID.
func parseMemberClientID(id string) (nodeID int32, address string, ok bool) {
	rest, ok := strings.CutPrefix(id, clientIDPrefix)
	if !ok {
		return -1, "", false
	}
	number, address, ok := strings.Cut(rest, "@")
	if !ok || address == "" {
		return -1, "", false
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 0 {
		return -1, "", false
	}
	return int32(n), address, true
}

// Members implements Membership: it asks the group's coordinator. A group that does not exist has no members.
func (m *KafkaMembership) Members(ctx context.Context) ([]GroupMember, error) {
	m.mu.Lock()
	client := m.client
	m.mu.Unlock()
	if client == nil { // before Run has joined: a client that is in no group
		var err error
		if client, err = kgo.NewClient(append(slices.Clone(m.cfg.Opts), m.common()...)...); err != nil {
			return nil, fmt.Errorf("ownership group: %w", err)
		}
		defer client.Close()
	}
	return m.members(ctx, client)
}

func (m *KafkaMembership) members(ctx context.Context, client *kgo.Client) ([]GroupMember, error) {
	described, err := kadm.NewClient(client).DescribeGroups(ctx, m.group)
	if err == nil {
		err = described[m.group].Err
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("describing the ownership group %s: %w", m.group, err)
	}
	var out []GroupMember
	for _, d := range described[m.group].Members {
		g := GroupMember{MemberID: d.MemberID, ClientID: d.ClientID, ClientHost: d.ClientHost}
		g.NodeID, g.Address, _ = parseMemberClientID(d.ClientID)
		if a, ok := d.Assigned.AsConsumer(); ok {
			for _, t := range a.Topics {
				if t.Topic == m.cfg.LogTopic {
					g.Partitions = append(g.Partitions, t.Partitions...)
				}
			}
		}
		slices.Sort(g.Partitions)
		if j, ok := d.Join.AsConsumer(); ok {
			g.Declines = readNote(j.UserData)
		}
		out = append(out, g)
	}
	return out, nil
}

// checkBefore refuses the node id if a live member carries it from another address. A dead predecessor is still in
// the group until its session is over, so a member counts as alive only if it outlasts one. A member with our address
// as well is taken for our own predecessor: checkAfter tells whether it is.
func (m *KafkaMembership) checkBefore(ctx context.Context) error {
	client, err := kgo.NewClient(append(slices.Clone(m.cfg.Opts), m.common()...)...)
	if err != nil {
		return fmt.Errorf("ownership group: %w", err)
	}
	defer client.Close()
	return m.probe(ctx, m.cfg.SessionTimeout+probeSlack, func(ctx context.Context) (*GroupMember, error) {
		members, err := m.members(ctx, client)
		return find(members, func(g GroupMember) bool {
			return g.NodeID == m.cfg.NodeID && g.Address != m.cfg.Address
		}), err
	})
}

// checkAfter looks once more when every dead predecessor has vanished: whoever still carries our node id, from whatever
// address, is alive. It is the newcomer that gives way; a replica that has been running longer looks no more.
func (m *KafkaMembership) checkAfter(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(m.cfg.SessionTimeout + probeSlack):
	}
	// One that died while the group was waiting for its join stays until the rebalance time-out.
	err := m.probe(ctx, m.cfg.SessionTimeout+m.cfg.RebalanceTimeout, func(ctx context.Context) (*GroupMember, error) {
		members, err := m.members(ctx, m.client)
		if foreign := find(members, func(g GroupMember) bool { return g.NodeID == -1 }); foreign != nil {
			m.log.Warn("a client that is no replica is in the ownership group; what it is assigned is served by nobody",
				"clientId", foreign.ClientID, "host", foreign.ClientHost, "partitions", foreign.Partitions)
		}
		self, _ := m.client.GroupMetadata()
		if find(members, func(g GroupMember) bool { return g.MemberID == self }) == nil {
			return nil, err // not in the group right now: nothing can be said
		}
		return find(members, func(g GroupMember) bool {
			return g.NodeID == m.cfg.NodeID && g.MemberID != self
		}), err
	})
	if ctx.Err() != nil || !errors.Is(err, eventlog.ErrNodeIDTaken) {
		return nil // the look is a courtesy once this replica is running
	}
	return err
}

// probe repeats look until it finds nobody. It returns ErrNodeIDTaken if it still finds somebody after patience, and
// the cluster's refusal if it refuses; a cluster that can't be reached is asked again.
func (m *KafkaMembership) probe(ctx context.Context, patience time.Duration, look func(context.Context) (*GroupMember, error)) error {
	deadline := time.Now().Add(patience)
	var told bool
	var complained time.Time
	for {
		one, cancel := context.WithTimeout(ctx, requestMax)
		other, err := look(one)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case isRefusal(err):
			return m.explain(ctx, err)
		case err != nil:
			if time.Since(complained) > complainPause {
				complained = time.Now()
				level := slog.LevelWarn
				if errors.Is(err, kerr.CoordinatorNotAvailable) {
					level = slog.LevelInfo // a new cluster makes its own topic of groups for the first one that asks
				}
				m.log.Log(ctx, level, "can't look at the ownership group yet", "err", err)
			}
			deadline = time.Now().Add(patience) // nobody was seen to outlast anything
		case other == nil:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%w: node id %d belongs to the replica %s (client %q on %s); give this one (%s) another --node-id, or stop the other",
				eventlog.ErrNodeIDTaken, m.cfg.NodeID, other.Address, other.ClientID, other.ClientHost, m.cfg.Address)
		case !told:
			told = true
			m.log.Warn("another member has our node id, waiting whether it is a dead one", "nodeId", m.cfg.NodeID,
				"address", other.Address, "host", other.ClientHost, "patience", patience)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(probePause):
		}
	}
}

func find(members []GroupMember, f func(GroupMember) bool) *GroupMember {
	if i := slices.IndexFunc(members, f); i >= 0 {
		return &members[i]
	}
	return nil
}

// isRefusal says that err is the cluster's answer to a setting or a right, which repeating does not change.
func isRefusal(err error) bool {
	for _, refusal := range []error{
		kerr.InvalidSessionTimeout, kerr.InvalidGroupID, kerr.GroupAuthorizationFailed, kerr.TopicAuthorizationFailed,
		kerr.ClusterAuthorizationFailed, kerr.SaslAuthenticationFailed, kerr.InconsistentGroupProtocol, kerr.GroupMaxSizeReached,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// explain says what to do about a refusal.
func (m *KafkaMembership) explain(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, eventlog.ErrNodeIDTaken):
		return err
	case errors.Is(err, kerr.InvalidSessionTimeout):
		return fmt.Errorf("ownership group %s: the cluster refuses the session time-out of %v (--ownership-session-timeout): it allows %s; change one or the other: %w",
			m.group, m.cfg.SessionTimeout, m.sessionBounds(ctx), err)
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return fmt.Errorf("ownership group %s: needs READ and DESCRIBE on this group: %w", m.group, err)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return fmt.Errorf("ownership group %s: needs READ and DESCRIBE on topic %s: %w", m.group, m.cfg.LogTopic, err)
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		return fmt.Errorf("ownership group %s: clients that are no replicas of streamkeeper are in it: %w", m.group, err)
	case errors.Is(err, kerr.GroupMaxSizeReached):
		return fmt.Errorf("ownership group %s: has as many members as the cluster's group.max.size allows: %w", m.group, err)
	}
	return fmt.Errorf("ownership group %s: %w", m.group, err)
}

// sessionBounds reads what session time-outs a broker allows, as far as it tells.
func (m *KafkaMembership) sessionBounds(ctx context.Context) string {
	const lowest, highest = "group.min.session.timeout.ms", "group.max.session.timeout.ms"
	bounds := map[string]string{lowest: "?", highest: "?"}
	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	admin := kadm.NewClient(m.client)
	if brokers, err := admin.ListBrokers(ctx); err == nil && len(brokers) > 0 {
		if configs, err := admin.DescribeBrokerConfigs(ctx, brokers[0].NodeID); err == nil {
			for _, resource := range configs {
				for _, c := range resource.Configs {
					if _, ok := bounds[c.Key]; ok && c.Value != nil {
						bounds[c.Key] = *c.Value
					}
				}
			}
		}
	}
	return lowest + "=" + bounds[lowest] + " to " + highest + "=" + bounds[highest]
}
