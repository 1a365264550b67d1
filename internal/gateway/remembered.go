package gateway

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// rememberedFor is how long the ranges that a broker named are good for answering a client while the broker can't be reached: longer
// than a restart takes, shorter than anybody needs to roll back a version.
const rememberedFor = 5 * time.Minute

// remembered is what a broker said of its APIs when it was last connected to.
//
// A connection that ends before ApiVersions was answered looks to clients like one to a port that speaks TLS, and some, franz-go
// among them, fail what they had to send. One that ends at the next request is a broker that went away, and they try again. So while
// a broker is down, ApiVersions is answered as it was last time.
type remembered struct {
	features kmsg.ApiVersionsResponse
	versions *versions
	at       time.Time
}

// remember keeps what the broker behind the listener said.
func (g *Gateway) remember(id int32, u *upstream) {
	g.offers.Store(id, &remembered{features: u.features, versions: u.versions, at: time.Now()})
}

// recall returns what the broker behind the listener said not too long ago; nil: nothing.
func (g *Gateway) recall(id int32) *remembered {
	v, ok := g.offers.Load(id)
	if !ok || time.Since(v.(*remembered).at) > rememberedFor {
		return nil
	}
	return v.(*remembered)
}
