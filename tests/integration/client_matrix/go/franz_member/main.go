// franz-go as a member of a group.
package main

import (
	"context"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kafkalike.tests/clients/member"
)

func main() {
	words := member.Read()
	var owned member.Owned
	drop := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) { owned.Drop(partitions) }
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(words.Bootstrap, ",")...),
		kgo.ConsumerGroup(words.Group),
		kgo.ConsumeTopics(words.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(member.Milliseconds("MEMBER_SESSION_MS")),
		kgo.HeartbeatInterval(member.Milliseconds("MEMBER_HEARTBEAT_MS")),
		kgo.RebalanceTimeout(member.Milliseconds("MEMBER_REBALANCE_MS")),
		kgo.MetadataMaxAge(2 * time.Second),
		kgo.MetadataMinAge(500 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			owned.Add(partitions)
		}),
		kgo.OnPartitionsRevoked(drop),
		kgo.OnPartitionsLost(drop),
	}
	if strings.HasPrefix(words.Topic, "^") {
		options = append(options, kgo.ConsumeRegex())
	}
	if strings.HasSuffix(words.Library, "cooperative") {
		options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	} else {
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	}
	if words.Instance != "" {
		options = append(options, kgo.InstanceID(words.Instance))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		panic(err)
	}
	ended := member.Ended()
	nextCommit := time.Now()
	for {
		select {
		case <-ended:
			client.CloseAllowingRebalance()
			owned.Clear()
			return
		default:
		}
		poll, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		client.PollFetches(poll).EachRecord(func(record *kgo.Record) {
			member.Say("read", member.Place(record.Topic, record.Partition), record.Offset)
		})
		cancel()
		if time.Now().After(nextCommit) {
			nextCommit = time.Now().Add(250 * time.Millisecond)
			commit(client)
		}
		client.AllowRebalance()
	}
}

func commit(client *kgo.Client) {
	limit, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	places := client.UncommittedOffsets()
	if len(places) == 0 {
		return
	}
	client.CommitOffsetsSync(limit, places, func(
		_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error,
	) {
		if err != nil {
			return
		}
		for _, topic := range answer.Topics {
			for _, partition := range topic.Partitions {
				if partition.ErrorCode == 0 {
					offset := places[topic.Topic][partition.Partition].Offset
					member.Say("committed", member.Place(topic.Topic, partition.Partition), offset)
				}
			}
		}
	})
}
