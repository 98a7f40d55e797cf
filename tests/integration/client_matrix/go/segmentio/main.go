// segmentio/kafka-go as a program of the matrix.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"kafkalike.tests/clients/contract"
)

const limit = 60 * time.Second

var codecs = map[string]kafka.Compression{
	"gzip":   kafka.Gzip,
	"snappy": kafka.Snappy,
	"lz4":    kafka.Lz4,
	"zstd":   kafka.Zstd,
}

// asWritten sends each message to the partition that was written beside it.
type asWritten struct{}

func (asWritten) Balance(message kafka.Message, _ ...int) int { return message.WriterData.(int) }

type program struct {
	servers []string
	client  *kafka.Client
}

func (p *program) Create(topic string, partitions int32, replicas int16, config map[string]string) error {
	request := kafka.TopicConfig{Topic: topic, NumPartitions: int(partitions), ReplicationFactor: int(replicas)}
	for name, value := range config {
		request.ConfigEntries = append(request.ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: value})
	}
	answer, err := p.client.CreateTopics(context.Background(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{request}})
	if err != nil {
		return err
	}
	return answer.Errors[topic]
}

func (p *program) metadata(topics ...string) ([]kafka.Topic, error) {
	answer, err := p.client.Metadata(context.Background(), &kafka.MetadataRequest{Topics: topics})
	if err != nil {
		return nil, err
	}
	return answer.Topics, nil
}

func (p *program) List() ([]string, error) {
	topics, err := p.metadata()
	var names []string
	for _, it := range topics {
		names = append(names, it.Name)
	}
	return names, err
}

func ids(brokers []kafka.Broker) []int32 {
	var numbers []int32
	for _, it := range brokers {
		numbers = append(numbers, int32(it.ID))
	}
	return numbers
}

func (p *program) Describe(topic string) ([]contract.Partition, error) {
	topics, err := p.metadata(topic)
	if err != nil {
		return nil, err
	}
	var views []contract.Partition
	for _, it := range topics[0].Partitions {
		view := contract.Partition{ID: int32(it.ID), Leader: int32(it.Leader.ID), Replicas: ids(it.Replicas), ISR: ids(it.Isr)}
		views = append(views, view)
	}
	slices.SortFunc(views, func(a, b contract.Partition) int { return int(a.ID - b.ID) })
	return views, topics[0].Error
}

func (p *program) Setting(topic, name string) (string, error) {
	resource := kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{name}}
	request := &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{resource}}
	answer, err := p.client.DescribeConfigs(context.Background(), request)
	if err != nil {
		return "", err
	}
	for _, it := range answer.Resources[0].ConfigEntries {
		if it.ConfigName == name {
			return it.ConfigValue, nil
		}
	}
	return "", fmt.Errorf("no setting %s (%v)", name, answer.Resources[0].Error)
}

func (p *program) Produce(topic, codec string, records []contract.Record) error {
	writer := &kafka.Writer{
		Addr: p.client.Addr, Topic: topic, Balancer: asWritten{}, Compression: codecs[codec],
		RequiredAcks: kafka.RequireAll, BatchTimeout: 5 * time.Millisecond, WriteTimeout: limit,
	}
	defer writer.Close()
	var messages []kafka.Message
	for _, it := range records {
		message := kafka.Message{Key: it.Key, Value: it.Value, WriterData: int(it.Partition)}
		if it.Timestamp >= 0 {
			message.Time = time.UnixMilli(it.Timestamp)
		}
		for _, header := range it.Headers {
			message.Headers = append(message.Headers, kafka.Header{Key: header.Name, Value: header.Value})
		}
		messages = append(messages, message)
	}
	return writer.WriteMessages(context.Background(), messages...)
}

func (p *program) offsets(topic string, partitions []kafka.Partition, asked kafka.OffsetRequest) (map[int]kafka.PartitionOffsets, error) {
	requests := map[string][]kafka.OffsetRequest{}
	for _, it := range partitions {
		requests[topic] = append(requests[topic], kafka.OffsetRequest{Partition: it.ID, Timestamp: asked.Timestamp})
	}
	answer, err := p.client.ListOffsets(context.Background(), &kafka.ListOffsetsRequest{Topics: requests})
	if err != nil {
		return nil, err
	}
	found := map[int]kafka.PartitionOffsets{}
	for _, it := range answer.Topics[topic] {
		if it.Error != nil {
			return nil, it.Error
		}
		found[it.Partition] = it
	}
	return found, nil
}

func (p *program) Consume(topic string, since int64, found func(contract.Record) error) error {
	topics, err := p.metadata(topic)
	if err != nil {
		return err
	}
	ends, err := p.offsets(topic, topics[0].Partitions, kafka.LastOffsetOf(0))
	if err != nil {
		return err
	}
	for _, it := range topics[0].Partitions {
		if err := p.consume(topic, it.ID, since, ends[it.ID].LastOffset, found); err != nil {
			return fmt.Errorf("partition %d: %w", it.ID, err)
		}
	}
	return nil
}

func (p *program) consume(topic string, partition int, since, end int64, found func(contract.Record) error) error {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: p.servers, Topic: topic, Partition: partition, MaxWait: 100 * time.Millisecond, MaxBytes: 8 << 20,
	})
	defer reader.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := reader.SetOffset(kafka.FirstOffset)
	if since >= 0 {
		err = reader.SetOffsetAt(ctx, time.UnixMilli(since))
	}
	if err != nil {
		return err
	}
	if since >= 0 && (reader.Offset() < 0 || reader.Offset() >= end) || end == 0 {
		return nil
	}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		it, err := reader.ReadMessage(ctx)
		cancel()
		if err != nil {
			return err
		}
		record := contract.Record{
			Partition: int32(it.Partition), Offset: it.Offset, Timestamp: it.Time.UnixMilli(), Key: it.Key, Value: it.Value,
		}
		for _, header := range it.Headers {
			record.Headers = append(record.Headers, contract.Header{Name: header.Key, Value: header.Value})
		}
		if err := found(record); err != nil {
			return err
		}
		if it.Offset >= end-1 {
			return nil
		}
	}
}

func main() {
	servers := strings.Split(os.Args[1], ",")
	client := &kafka.Client{Addr: kafka.TCP(servers...), Timeout: limit}
	contract.Serve("kafka-go", contract.Version("github.com/segmentio/kafka-go"), &program{servers, client})
}
