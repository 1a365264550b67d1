package admin

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/wire"
)

// answeringMax is how long somebody among the bootstrap addresses may take to answer before all of them are tried in turn, as the client does:
// many round trips to another continent, and short beside the ten seconds that it waits for one that hangs.
const answeringMax = 2 * time.Second

// Answering is whoever of the bootstrap addresses answers first, all being asked at once; all of them where nobody answers soon. A client that
// happens to begin with a process that hangs, whose connections open and stay silent, would spend most of its time there.
func Answering(ctx context.Context, bootstrap []string) []string {
	if len(bootstrap) < 2 {
		return bootstrap
	}
	ctx, cancel := context.WithTimeout(ctx, answeringMax)
	defer cancel() // ends the others
	first := make(chan string, len(bootstrap))
	for _, addr := range bootstrap {
		go func() {
			if answers(ctx, addr) {
				first <- addr
			}
		}()
	}
	select {
	case addr := <-first:
		return []string{addr}
	case <-ctx.Done():
		return bootstrap
	}
}

// answers asks for the nodes, which a replica that is cut from the cluster can't tell.
func answers(ctx context.Context, addr string) bool {
	cl, err := wire.Dial(ctx, addr, clientID)
	if err != nil {
		return false
	}
	defer cl.Close()
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.Topics = 1, []kmsg.MetadataRequestTopic{} // of no topics
	resp, err := cl.Exchange(ctx, req)
	return err == nil && len(resp.(*kmsg.MetadataResponse).Brokers) > 0
}
