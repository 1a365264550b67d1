package client_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/client"
	"streamkeeper/client/topology"
)

// Prints the topology of a group as kafka-streams-groups does, and writes it as a picture.
func ExampleAdmin_DescribeStreamsGroups() {
	cl, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:9292"))
	if err != nil {
		panic(err)
	}
	defer cl.Close()
	ctx := context.Background()
	for _, g := range client.NewAdmin(cl).DescribeStreamsGroups(ctx, []string{"orders", "payments"}, client.DescribeOptions{IncludeTopologyDescription: true}) {
		if g.Err != nil {
			fmt.Println(g.Group, g.Err)
			continue
		}
		if err := g.Description.WriteTopology(ctx, os.Stdout, topology.Text); err != nil {
			fmt.Println(err)
			continue
		}
		f, err := os.Create(g.Group + ".svg")
		if err != nil {
			panic(err)
		}
		if err := g.Description.WriteTopology(ctx, f, topology.SVG); err != nil {
			fmt.Println(err)
		}
		f.Close()
	}
}

// Prints why groups do not run as they should.
func ExampleGroupDescription_Explain() {
	cl, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:9292"))
	if err != nil {
		panic(err)
	}
	defer cl.Close()
	for _, g := range client.NewAdmin(cl).DescribeStreamsGroups(context.Background(), []string{"orders"}, client.DescribeOptions{Explain: true}) {
		if g.Err != nil {
			fmt.Println(g.Group, g.Err)
			continue
		}
		why := g.Description.Explain()
		for _, r := range why.Reasons {
			fmt.Println(g.Group, why.State, r.Code, r.TextAt(why.At))
		}
		fmt.Println(g.Group, why.Description.Cause, why.Description.TextAt(why.At))
	}
}

// A program that takes part in a group: one subtopology that reads orders and writes invoices.
func ExampleMember() {
	cl, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:9292"))
	if err != nil {
		panic(err)
	}
	defer cl.Close()
	invoices := "invoices"
	m, err := client.NewMember(cl, client.MemberConfig{
		Group:         "orders",
		Subtopologies: []client.Subtopology{{ID: "0", SourceTopics: []string{"orders"}}},
		Description: &topology.Description{Subtopologies: []topology.Subtopology{{ID: "0", Nodes: []topology.Node{
			{Name: "orders-source", Type: topology.Source, Topics: []string{"orders"}, Successors: []string{"bill"}},
			{Name: "bill", Type: topology.Processor, Successors: []string{"invoices-sink"}},
			{Name: "invoices-sink", Type: topology.Sink, SinkTopic: &invoices},
		}}}},
		Assign: func(_ context.Context, tasks client.Tasks) error {
			fmt.Println("now mine:", tasks) // start a reader for each that is new
			return nil
		},
		Revoke: func(_ context.Context, tasks client.Tasks) error {
			fmt.Println("given up:", tasks) // stop their readers and commit
			return nil
		},
		Lose: func(tasks client.Tasks) {
			fmt.Println("lost:", tasks) // stop their readers; nothing may be committed
		},
	})
	if err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := m.Run(ctx); err != nil {
		fmt.Println(err)
	}
}
