package main

import (
	"context"
	"iter"
	"time"

	"streamkeeper/cleanup"
	"streamkeeper/internal/wall"
	"streamkeeper/plugin"
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

// sweptShards are the shards that this replica serves now, as the S that a loop of the package cleanup takes.
func sweptShards[S any](host *shard.Host, store *projection.Store, env offsets.Env, as func(*sweptShard) S) []S {
	var out []S
	for p := range host.Partitions() {
		if host.Owns(p) {
			out = append(out, as(&sweptShard{host, store, p, env}))
		}
	}
	return out
}

func (s *sweptShard) Partition() int32 { return s.partition }

func (s *sweptShard) Candidates(ctx context.Context) iter.Seq2[string, error] {
	env := s.env
	env.Now = wall.Now().UnixMilli()
	return cleanup.AllCandidates(ctx, s.store, s.partition, env)
}

func (s *sweptShard) Expire(ctx context.Context, groups []string) ([]shard.Judged, error) {
	return s.host.ExpireGroups(ctx, s.partition, groups)
}

func (s *sweptShard) Tenure() context.Context { return s.host.TenureOf(s.partition) }

// Offsets yields the topics that groups of the shard have committed offsets of.
func (s *sweptShard) Offsets(ctx context.Context, topic string, f func(group string, ref offsets.TopicRef) bool) error {
	return cleanup.OffsetTopics(ctx, s.store, s.partition, topic, f)
}

func (s *sweptShard) ForgetTopics(ctx context.Context, groups []string, gone func(offsets.TopicRef) bool, before time.Time) ([]shard.Judged, error) {
	return s.host.ForgetTopics(ctx, s.partition, groups, gone, before)
}

// Described yields empty groups without offsets that may have a topology description.
func (s *sweptShard) Described(ctx context.Context) iter.Seq2[string, error] {
	return cleanup.DescribedCandidates(ctx, s.store, s.partition)
}

// SeemsDescribed looks into the projection, MayBeDescribed asks the shard.
func (s *sweptShard) SeemsDescribed(group string) (bool, error) {
	return cleanup.SeemsDescribed(s.store, s.partition, group)
}

func (s *sweptShard) MayBeDescribed(ctx context.Context, group string) (bool, error) {
	return s.host.MayBeDescribed(ctx, group)
}

func (s *sweptShard) MarkExpired(ctx context.Context, group string) (bool, error) {
	return s.host.MarkExpired(ctx, group)
}

func (s *sweptShard) DescriptionDeleted(ctx context.Context, group string) error {
	return s.host.DescriptionDeleted(ctx, group)
}

// Stored lists what the log says is stored of topology descriptions.
func (s *sweptShard) Stored(ctx context.Context, after string, limit int) ([]plugin.GetCall, string, error) {
	return cleanup.StoredDescriptions(ctx, s.store, s.partition, after, limit)
}

func (s *sweptShard) DescriptionLost(ctx context.Context, group string, topologyEpoch int32) error {
	return s.host.DescriptionLost(ctx, group, topologyEpoch)
}

var (
	_ cleanup.LostShard     = (*sweptShard)(nil)
	_ cleanup.OrphanedShard = (*sweptShard)(nil)
	_ cleanup.TopicShard    = (*sweptShard)(nil)
)
