// franz-go as a reader that says what it reads and what it hears is lost: SERVERS TOPIC, from the start.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	servers, topic := strings.Split(os.Args[1], ","), os.Args[2]
	start := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(servers...),
		kgo.ConsumePartitions(start),
		kgo.MetadataMinAge(100*time.Millisecond),
		kgo.MetadataMaxAge(500*time.Millisecond),
	)
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(context.Background())
		for _, it := range fetches.Errors() {
			var lost *kgo.ErrDataLoss
			if errors.As(it.Err, &lost) {
				fmt.Println("lost", lost.ConsumedTo, lost.ResetTo)
			}
		}
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Println("record", record.Offset, string(record.Value))
		})
	}
}
