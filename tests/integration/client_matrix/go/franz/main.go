// franz-go as a program of the matrix.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kafkalike.tests/clients/contract"
)

const limit = 60 * time.Second

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

type franz struct {
	servers []string
	admin   *kadm.Client
}

func (f *franz) client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options, kgo.SeedBrokers(f.servers...))...)
}

func (f *franz) Create(topic string, partitions int32, replicas int16, config map[string]string) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	settings := map[string]*string{}
	for name, value := range config {
		settings[name] = kadm.StringPtr(value)
	}
	_, err := f.admin.CreateTopic(ctx, partitions, replicas, settings, topic)
	return err
}

func (f *franz) List() ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	topics, err := f.admin.ListTopics(ctx)
	return topics.Names(), err
}

func (f *franz) Describe(topic string) ([]contract.Partition, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	topics, err := f.admin.ListTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	var views []contract.Partition
	for _, it := range topics[topic].Partitions.Sorted() {
		views = append(views, contract.Partition{ID: it.Partition, Leader: it.Leader, Replicas: it.Replicas, ISR: it.ISR})
	}
	return views, topics[topic].Err
}

func (f *franz) Setting(topic, name string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	found, err := f.admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return "", err
	}
	for _, resource := range found {
		if index := slices.IndexFunc(resource.Configs, func(it kadm.Config) bool { return it.Key == name }); index >= 0 {
			return resource.Configs[index].MaybeValue(), resource.Err
		}
	}
	return "", fmt.Errorf("no setting %s", name)
}

func (f *franz) Produce(topic, codec string, records []contract.Record) error {
	client, err := f.client(
		kgo.ProducerBatchCompression(codecs[codec]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(5*time.Millisecond),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	failures := make(chan error, 1)
	for _, it := range records {
		record := &kgo.Record{Topic: topic, Partition: it.Partition, Key: it.Key, Value: it.Value}
		if it.Timestamp >= 0 {
			record.Timestamp = time.UnixMilli(it.Timestamp)
		}
		for _, header := range it.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		client.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failures <- err:
				default:
				}
			}
		})
	}
	// No delivery timeout: it counts from a record's own timestamp, which may be years ago.
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := client.Flush(ctx); err != nil {
		return err
	}
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}

func (f *franz) offsets(topic string, since int64) (starts, ends kadm.ListedOffsets, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if ends, err = f.admin.ListEndOffsets(ctx, topic); err != nil {
		return
	}
	if since < 0 {
		starts, err = f.admin.ListStartOffsets(ctx, topic)
	} else {
		starts, err = f.admin.ListOffsetsAfterMilli(ctx, since, topic)
	}
	return
}

func (f *franz) Consume(topic string, since int64, found func(contract.Record) error) error {
	starts, ends, err := f.offsets(topic, since)
	if err != nil {
		return err
	}
	places, open := map[int32]kgo.Offset{}, map[int32]int64{}
	for partition, end := range ends[topic] {
		start := starts[topic][partition].Offset
		if start >= 0 && start < end.Offset {
			places[partition], open[partition] = kgo.NewOffset().At(start), end.Offset
		}
	}
	if len(open) == 0 {
		return nil
	}
	client, err := f.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: places}))
	if err != nil {
		return err
	}
	defer client.Close()
	for len(open) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		fetches := client.PollFetches(ctx)
		cancel()
		if err := fetches.Err(); err != nil {
			return err
		}
		for iterator := fetches.RecordIter(); !iterator.Done(); {
			it := iterator.Next()
			end, wanted := open[it.Partition]
			if !wanted {
				continue
			}
			record := contract.Record{
				Partition: it.Partition, Offset: it.Offset, Timestamp: it.Timestamp.UnixMilli(), Key: it.Key, Value: it.Value,
			}
			for _, header := range it.Headers {
				record.Headers = append(record.Headers, contract.Header{Name: header.Key, Value: header.Value})
			}
			if err := found(record); err != nil {
				return err
			}
			if it.Offset == end-1 {
				delete(open, it.Partition)
			}
		}
	}
	return nil
}

func main() {
	program := &franz{servers: strings.Split(os.Args[1], ",")}
	client, err := program.client()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	program.admin = kadm.NewClient(client)
	contract.Serve("franz-go", contract.Version("github.com/twmb/franz-go"), program)
}
