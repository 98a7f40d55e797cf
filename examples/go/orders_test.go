// franz-go through the loss of a broker, over the command line and the control port.
package orders

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Cluster is a cluster for one test; it ends with the test binary, however that ends.
type Cluster struct {
	Bootstrap string `json:"bootstrap_servers"`
	Control   string `json:"control"`
}

func StartCluster(t *testing.T, brokers int) *Cluster {
	t.Helper()
	up := exec.Command("kafkalike", "up", "--brokers", strconv.Itoa(brokers), "--memory",
		"--port", "0", "--control-port", "0", "--output", "json",
		"--until-exit-of", strconv.Itoa(os.Getpid()))
	up.Stderr = os.Stderr
	out, err := up.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = up.Process.Signal(syscall.SIGTERM)
		_ = up.Wait()
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	cluster := &Cluster{}
	if err := json.Unmarshal(line, cluster); err != nil {
		t.Fatal(err)
	}
	return cluster
}

// Call runs a verb; result may be nil.
func (c *Cluster) Call(t *testing.T, verb string, arguments map[string]any, result any) {
	t.Helper()
	if arguments == nil {
		arguments = map[string]any{}
	}
	body, _ := json.Marshal(arguments)
	response, err := http.Post(c.Control+"/"+verb, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", verb, data)
	}
	answer := struct{ Result any }{result}
	if err := json.Unmarshal(data, &answer); err != nil {
		t.Fatal(err)
	}
}

func TestOrdersSurviveTheirLeader(t *testing.T) {
	cluster := StartCluster(t, 3)
	cluster.Call(t, "prepare_groups", nil, nil)
	cluster.Call(t, "create_topic", map[string]any{"topic": "orders"}, nil)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(cluster.Bootstrap, ",")...),
		kgo.ConsumerGroup("test"), kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	produce := func(value string) {
		record := &kgo.Record{Topic: "orders", Value: []byte(value)}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	produce("before")
	var leader int
	cluster.Call(t, "leader", map[string]any{"topic": "orders"}, &leader)
	cluster.Call(t, "kill", map[string]any{"broker": leader, "at_once": true}, nil)
	cluster.Call(t, "wait_leader", map[string]any{"topic": "orders", "other_than": leader}, nil)
	produce("after")
	var values []string
	for len(values) < 2 && ctx.Err() == nil {
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	if fmt.Sprint(values) != "[before after]" {
		t.Fatal(values)
	}
}
