package gateway

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// errMoved ends a connection over which a member was told that its coordinator is elsewhere.
//
// A Java client keeps one connection per node id, whatever address it has learned since. Its lookup of a group that is not in the
// log yet may be answered by another replica, which names the cluster's coordinator as reached through itself: the same node
// id at another port. The client would take the connection that it has, come back here, and be refused for ever. Without a
// connection it goes where the lookup says.
//
// A push of a topology description that is sent away (93) does not need this: the member was accepted before, so the group is in the log, every
// replica's lookup names the owner's own node, and the member's next heartbeat is sent away over the same connection if need be.
var errMoved = errors.New("the client's coordinator is elsewhere")

// moved says that an answer sends the client away.
func moved(resp kmsg.Response) bool {
	h, ok := resp.(*kmsg.StreamsGroupHeartbeatResponse)
	return ok && h.ErrorCode == notCoordinator.Code
}
