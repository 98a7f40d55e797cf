// sarama as a member of a group; it does not say whether a commit was taken, so no line says it here.
package main

import (
	"context"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"kafkalike.tests/clients/member"
)

type handler struct{ owned member.Owned }

func (h *handler) Setup(session sarama.ConsumerGroupSession) error {
	h.owned.Add(session.Claims())
	return nil
}

func (h *handler) Cleanup(sarama.ConsumerGroupSession) error {
	h.owned.Clear()
	return nil
}

func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	ticks := time.NewTicker(250 * time.Millisecond)
	defer ticks.Stop()
	for {
		select {
		case <-session.Context().Done():
			return nil
		case <-ticks.C:
			session.Commit()
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			member.Say("read", member.Place(message.Topic, message.Partition), message.Offset)
			session.MarkMessage(message, "")
		}
	}
}

func main() {
	words := member.Read()
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Metadata.RefreshFrequency = 2 * time.Second
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Return.Errors = false
	config.Consumer.Group.Session.Timeout = member.Milliseconds("MEMBER_SESSION_MS")
	config.Consumer.Group.Heartbeat.Interval = member.Milliseconds("MEMBER_HEARTBEAT_MS")
	config.Consumer.Group.Rebalance.Timeout = member.Milliseconds("MEMBER_REBALANCE_MS")
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	config.Consumer.Group.InstanceId = words.Instance
	running, stop := context.WithCancel(context.Background())
	ended := member.Ended()
	go func() {
		<-ended
		stop()
	}()
	for running.Err() == nil {
		group, err := sarama.NewConsumerGroup(strings.Split(words.Bootstrap, ","), words.Group, config)
		if err != nil {
			time.Sleep(500 * time.Millisecond)
			continue
		}
		member := &handler{}
		for running.Err() == nil {
			if err := group.Consume(running, []string{words.Topic}, member); err != nil {
				time.Sleep(200 * time.Millisecond)
			}
		}
		_ = group.Close()
	}
}
