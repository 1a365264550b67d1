package admin

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/client"
)

// clientID is that of our commands; gateways show it only the replicas that own shards.
const clientID = "streamkeeper-cli"

// Client asks one cluster. The contexts of its methods bound how long they try.
type Client struct {
	cl     *kgo.Client
	adm    *kadm.Client
	groups *client.Admin
}

// answerBytesMax is the longest answer that is read: a list of a million groups with ids of 249 characters takes 270 MB, and Java's clients read
// any length too. A longer one ends the connection, so that a peer that speaks no Kafka can't fill the memory.
const answerBytesMax = 1 << 30

// New connects when it is first used. opts are those of the caller beyond the addresses.
func New(bootstrap []string, opts ...kgo.Opt) (*Client, error) {
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(bootstrap...), kgo.ClientID(clientID), kgo.BrokerMaxReadBytes(answerBytesMax)}, opts...)...)
	if err != nil {
		return nil, err
	}
	return &Client{cl: cl, adm: kadm.NewClient(cl), groups: client.NewAdmin(cl)}, nil
}

// Kafka is the client below, for requests that this package has no method for.
func (c *Client) Kafka() *kgo.Client { return c.cl }

// Groups is what asks about streams groups, for questions that this package has no method for.
func (c *Client) Groups() *client.Admin { return c.groups }

// Close ends the connections.
func (c *Client) Close() { c.cl.Close() }

// List lists the streams groups of all nodes, ascending by id; states, if there are any, are those that are wanted.
func (c *Client) List(ctx context.Context, states []string) ([]client.ListedGroup, error) {
	return c.groups.ListStreamsGroups(ctx, states...)
}

// Delete deletes one group with its committed offsets. It has to be without members.
func (c *Client) Delete(ctx context.Context, group string) error {
	return c.groups.DeleteStreamsGroups(ctx, group)[0].Err
}
