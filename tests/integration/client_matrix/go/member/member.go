// Package member is what members of groups have in common; they say what tests/integration/groups/member.py describes.
package member

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const partitionsOfATopic = 1000

// Words of the command line.
type Words struct{ Library, Bootstrap, Group, Topic, Instance string }

// Read gives the command line.
func Read() Words {
	words := append(os.Args[1:], "")
	return Words{words[0], words[1], words[2], words[3], words[4]}
}

// Milliseconds is a time out of the environment.
func Milliseconds(name string) time.Duration {
	number, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		panic(name + ": " + err.Error())
	}
	return time.Duration(number) * time.Millisecond
}

// Ended is closed when the input ends.
func Ended() <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	return ended
}

var output sync.Mutex

// Say writes a line.
func Say(words ...any) {
	output.Lock()
	defer output.Unlock()
	fmt.Println(append([]any{time.Now().UnixMilli()}, words...)...)
}

// Place is a partition as a number of its own among all topics.
func Place(topic string, partition int32) int32 {
	number, _ := strconv.Atoi(topic[strings.LastIndexByte(topic, '-')+1:])
	return int32(partitionsOfATopic*number) + partition
}

// Owned is what the member owns; every change is said.
type Owned struct {
	lock   sync.Mutex
	places map[int32]bool
}

func (o *Owned) change(partitions map[string][]int32, owned bool) {
	o.lock.Lock()
	defer o.lock.Unlock()
	if o.places == nil {
		o.places = map[int32]bool{}
	}
	for topic, numbers := range partitions {
		for _, number := range numbers {
			if owned {
				o.places[Place(topic, number)] = true
			} else {
				delete(o.places, Place(topic, number))
			}
		}
	}
	var places []int32
	for place := range o.places {
		places = append(places, place)
	}
	slices.Sort(places)
	texts := make([]string, len(places))
	for index, place := range places {
		texts[index] = strconv.Itoa(int(place))
	}
	list := strings.Join(texts, ",")
	if list == "" {
		list = "-"
	}
	Say("owns", list)
}

// Add says that more are owned.
func (o *Owned) Add(partitions map[string][]int32) { o.change(partitions, true) }

// Drop says that these are owned no longer.
func (o *Owned) Drop(partitions map[string][]int32) { o.change(partitions, false) }

// Clear says that none is owned.
func (o *Owned) Clear() {
	o.lock.Lock()
	o.places = nil
	o.lock.Unlock()
	o.change(nil, false)
}
