package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Leave implements Membership. Its error says that the group was not told in time: it finds out by itself after the
// session time-out.
func (m *KafkaMembership) Leave(ctx context.Context) error {
	m.mu.Lock()
	client, before := m.client, m.leaving
	m.leaving = true
	m.lease.stop()
	m.revokeLocked(sorted(m.told))
	m.mu.Unlock()
	if client == nil || before {
		return nil
	}
	left := make(chan error, 1)
	go func() { left <- client.LeaveGroupContext(ctx) }()
	var err error
	select {
	case err = <-left:
	case <-time.After(leavePatience):
		// kgo waits for a join under way, which waits for the other members.
		err = m.leaveNow(ctx, client)
	}
	if err != nil && !errors.Is(err, kerr.UnknownMemberID) { // whom the group does not know has left it
		return fmt.Errorf("ownership group: leaving: %w", err)
	}
	m.mu.Lock()
	m.left = true
	m.mu.Unlock()
	return nil
}

// leaveNow tells the coordinator that this member leaves, whatever kgo waits for.
func (m *KafkaMembership) leaveNow(ctx context.Context, client *kgo.Client) error {
	id, _ := client.GroupMetadata()
	if id == "" {
		return nil
	}
	return m.leaveAs(ctx, client, id)
}

// leaveFormer has the member that a dead process of this replica left behind leave the group. What can't be done is left to the end of its session.
func (m *KafkaMembership) leaveFormer(ctx context.Context) {
	if m.cfg.Former == "" {
		return
	}
	client, err := kgo.NewClient(append(slices.Clone(m.cfg.Opts), m.common()...)...)
	if err == nil {
		defer client.Close()
		ctx, cancel := context.WithTimeout(ctx, m.cfg.SessionTimeout) // it would be over by then
		defer cancel()
		err = m.leaveAs(ctx, client, m.cfg.Former)
	}
	switch {
	case err == nil:
		m.log.Info("the former process of this replica was still in the group, and is not any more", "member", m.cfg.Former)
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.GroupIDNotFound): // it had left, or its session was over
	case ctx.Err() == nil:
		m.log.Warn("can't take the former process of this replica out of the group, its session has to end", "member", m.cfg.Former, "err", err)
	}
}

// leaveAs tells the coordinator that the member of an id leaves.
func (m *KafkaMembership) leaveAs(ctx context.Context, client *kgo.Client, id string) error {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = m.group, id
	member := kmsg.NewLeaveGroupRequestMember()
	member.MemberID = req.MemberID
	req.Members = append(req.Members, member)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	code := resp.ErrorCode
	for _, r := range resp.Members { // v3+ answers for each
		code = cmp.Or(code, r.ErrorCode)
	}
	return kerr.ErrorForCode(code)
}

// close leaves the group, if Leave did not, and ends the client; within closeMax.
func (m *KafkaMembership) close() {
	m.lease.end()
	ctx, cancel := context.WithTimeout(context.Background(), closeMax)
	defer cancel()
	m.mu.Lock()
	tried := m.leaving
	m.leaving = true
	left := m.left
	m.mu.Unlock()
	if tried && !left { // Leave had its time: the cluster does not answer
		cancel()
	} else if !left {
		if err := m.client.LeaveGroupContext(ctx); err != nil && !errors.Is(err, kerr.UnknownMemberID) {
			m.log.Warn("did not leave, partitions move after the session time-out", "err", err)
		}
	}
	closed := make(chan struct{})
	go func() { m.client.CloseAllowingRebalance(); close(closed) }()
	select {
	case <-closed:
	case <-ctx.Done(): // kgo ends by itself when its last request does
	}
}
