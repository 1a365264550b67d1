package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = m.group
	if req.MemberID, _ = client.GroupMetadata(); req.MemberID == "" {
		return nil
	}
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
	m.leaving = true
	left := m.left
	m.mu.Unlock()
	if !left {
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
