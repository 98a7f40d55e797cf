// sarama as a program of the matrix.
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"kafkalike.tests/clients/contract"
)

const limit = 60 * time.Second

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

type program struct {
	servers []string
	admin   sarama.ClusterAdmin
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	config.Consumer.MaxWaitTime = 50 * time.Millisecond
	config.Producer.Flush.Frequency = 5 * time.Millisecond
	return config
}

func (p *program) Create(topic string, partitions int32, replicas int16, config map[string]string) error {
	entries := map[string]*string{}
	for name, value := range config {
		entries[name] = &value
	}
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: replicas, ConfigEntries: entries}
	return p.admin.CreateTopic(topic, detail, false)
}

func (p *program) List() ([]string, error) {
	topics, err := p.admin.ListTopics()
	var names []string
	for name := range topics {
		names = append(names, name)
	}
	return names, err
}

func (p *program) Describe(topic string) ([]contract.Partition, error) {
	topics, err := p.admin.DescribeTopics([]string{topic})
	if err != nil {
		return nil, err
	}
	if topics[0].Err != sarama.ErrNoError {
		return nil, topics[0].Err
	}
	var views []contract.Partition
	for _, it := range topics[0].Partitions {
		views = append(views, contract.Partition{ID: it.ID, Leader: it.Leader, Replicas: it.Replicas, ISR: it.Isr})
	}
	slices.SortFunc(views, func(a, b contract.Partition) int { return int(a.ID - b.ID) })
	return views, nil
}

func (p *program) Setting(topic, name string) (string, error) {
	resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{name}}
	entries, err := p.admin.DescribeConfig(resource)
	if err != nil {
		return "", err
	}
	for _, it := range entries {
		if it.Name == name {
			return it.Value, nil
		}
	}
	return "", fmt.Errorf("no setting %s", name)
}

func encoder(data []byte) sarama.Encoder {
	if data == nil {
		return nil
	}
	return sarama.ByteEncoder(data)
}

func (p *program) Produce(topic, codec string, records []contract.Record) error {
	config := settings()
	config.Producer.Compression = codecs[codec]
	producer, err := sarama.NewAsyncProducer(p.servers, config)
	if err != nil {
		return err
	}
	go func() {
		for _, it := range records {
			message := &sarama.ProducerMessage{
				Topic: topic, Partition: it.Partition, Key: encoder(it.Key), Value: encoder(it.Value),
			}
			if it.Timestamp >= 0 {
				message.Timestamp = time.UnixMilli(it.Timestamp)
			}
			for _, header := range it.Headers {
				pair := sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value}
				message.Headers = append(message.Headers, pair)
			}
			producer.Input() <- message
		}
	}()
	var failure error
	for range records {
		select {
		case <-producer.Successes():
		case err := <-producer.Errors():
			failure = err
		}
	}
	return errors.Join(failure, producer.Close())
}

func (p *program) Consume(topic string, since int64, found func(contract.Record) error) error {
	client, err := sarama.NewClient(p.servers, settings())
	if err != nil {
		return err
	}
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	defer consumer.Close()
	partitions, err := client.Partitions(topic)
	if err != nil {
		return err
	}
	for _, partition := range partitions {
		if err := p.consume(client, consumer, topic, partition, since, found); err != nil {
			return fmt.Errorf("partition %d: %w", partition, err)
		}
	}
	return nil
}

func (p *program) consume(
	client sarama.Client, consumer sarama.Consumer, topic string, partition int32, since int64, found func(contract.Record) error,
) error {
	end, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
	if err != nil {
		return err
	}
	asked := sarama.OffsetOldest
	if since >= 0 {
		asked = since
	}
	start, err := client.GetOffset(topic, partition, asked)
	if err != nil || start < 0 || start >= end {
		return err
	}
	source, err := consumer.ConsumePartition(topic, partition, start)
	if err != nil {
		return err
	}
	defer source.Close()
	for {
		select {
		case it := <-source.Messages():
			record := contract.Record{
				Partition: it.Partition, Offset: it.Offset, Timestamp: it.Timestamp.UnixMilli(), Key: it.Key, Value: it.Value,
			}
			for _, header := range it.Headers {
				record.Headers = append(record.Headers, contract.Header{Name: string(header.Key), Value: header.Value})
			}
			if err := found(record); err != nil {
				return err
			}
			if it.Offset == end-1 {
				return nil
			}
		case <-time.After(limit):
			return errors.New("nothing came")
		}
	}
}

func main() {
	servers := strings.Split(os.Args[1], ",")
	admin, err := sarama.NewClusterAdmin(servers, settings())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	contract.Serve("sarama", contract.Version("github.com/IBM/sarama"), &program{servers, admin})
}
