package main

import (
	"context"
	"iter"
	"time"

	"streamkeeper/cleanup"
	"streamkeeper/projection"
	"streamkeeper/shard"
	"streamkeeper/shard/offsets"
)

// sweptShard is a shard as the cleanup cycle sees it.
type sweptShard struct {
	host      *shard.Host
	store     *projection.Store
	partition int32
	env       offsets.Env
}

// sweptShards are the shards that this replica serves now.
func sweptShards(host *shard.Host, store *projection.Store, env offsets.Env) []cleanup.Shard {
	var out []cleanup.Shard
	for p := range host.Partitions() {
		if host.Owns(p) {
			out = append(out, &sweptShard{host, store, p, env})
		}
	}
	return out
}

func (s *sweptShard) Partition() int32 { return s.partition }

func (s *sweptShard) Candidates(ctx context.Context) iter.Seq2[string, error] {
	env := s.env
	env.Now = time.Now().UnixMilli()
	return cleanup.AllCandidates(ctx, s.store, s.partition, env)
}

func (s *sweptShard) Expire(ctx context.Context, group string) (expired int, removed bool, err error) {
	e, err := s.host.Expire(ctx, group)
	return e.Offsets, e.Removed, err
}

func (s *sweptShard) Tenure() context.Context { return s.host.TenureOf(s.partition) }

// Described yields empty groups without offsets that may have a topology description.
func (s *sweptShard) Described(ctx context.Context) iter.Seq2[string, error] {
	return cleanup.DescribedCandidates(ctx, s.store, s.partition)
}

func (s *sweptShard) MarkExpired(ctx context.Context, group string) (bool, error) {
	return s.host.MarkExpired(ctx, group)
}

func (s *sweptShard) DescriptionDeleted(ctx context.Context, group string) error {
	return s.host.DescriptionDeleted(ctx, group)
}

var _ cleanup.DescribedShard = (*sweptShard)(nil)
