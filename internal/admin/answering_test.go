package admin

import (
	"net"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// TestAHangingBootstrapAddressIsPassedOver: a process that hangs takes connections and never answers; a dead one refuses them.
func TestAHangingBootstrapAddressIsPassedOver(t *testing.T) {
	hanging, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hanging.Close()
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	alive := c.ListenAddrs()[0]
	if got := Answering(t.Context(), []string{hanging.Addr().String(), dead.Addr().String(), alive}); !slices.Equal(got, []string{alive}) {
		t.Errorf("%v is chosen, want %s", got, alive)
	}
	all := []string{hanging.Addr().String(), dead.Addr().String()}
	if got := Answering(t.Context(), all); !slices.Equal(got, all) {
		t.Errorf("where nobody answers %v is chosen, want %v", got, all)
	}
	if got := Answering(t.Context(), all[:1]); !slices.Equal(got, all[:1]) {
		t.Errorf("of one address %v is chosen", got)
	}
}
