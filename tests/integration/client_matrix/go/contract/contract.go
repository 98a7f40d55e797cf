// Package contract is the part that all Go programs of the matrix share: commands, answers and
// files of records, as contract.py describes them.
package contract

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// Header of a record; a nil value is null.
type Header struct {
	Name  string
	Value []byte
}

// Record as clients give and get it; nil is null, Timestamp -1 none.
type Record struct {
	Partition int32
	Offset    int64
	Timestamp int64
	Key       []byte
	Value     []byte
	Headers   []Header
}

// Partition is one partition as describe tells it.
type Partition struct {
	ID       int32
	Leader   int32
	Replicas []int32
	ISR      []int32
}

// Client is what a program implements; Since is -1 for the beginning.
type Client interface {
	Create(topic string, partitions int32, replicas int16, config map[string]string) error
	List() ([]string, error)
	Describe(topic string) ([]Partition, error)
	Setting(topic, name string) (string, error)
	Produce(topic, codec string, records []Record) error
	Consume(topic string, since int64, found func(Record) error) error
}

// Version of a module that the program was built with.
func Version(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, it := range info.Deps {
			if it.Path == module {
				return it.Version
			}
		}
	}
	return "unknown"
}

// Serve is the whole life of a program.
func Serve(library, version string, client Client) {
	fmt.Printf("ready\t%s\t%s\tnone,gzip,snappy,lz4,zstd\n", library, version)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words, err := answer(client, strings.Split(lines.Text(), "\t"))
		if err != nil {
			text := strings.NewReplacer("\t", " ", "\n", " ").Replace(err.Error())
			fmt.Printf("error\t%s\n", text)
			continue
		}
		fmt.Println(strings.Join(append([]string{"ok"}, words...), "\t"))
	}
}

func answer(client Client, words []string) ([]string, error) {
	switch words[0] {
	case "create":
		partitions, err := strconv.Atoi(words[2])
		if err != nil {
			return nil, err
		}
		replicas, err := strconv.Atoi(words[3])
		if err != nil {
			return nil, err
		}
		config := map[string]string{}
		for _, pair := range words[4:] {
			name, value, _ := strings.Cut(pair, "=")
			config[name] = value
		}
		return nil, client.Create(words[1], int32(partitions), int16(replicas), config)
	case "list":
		return client.List()
	case "describe":
		partitions, err := client.Describe(words[1])
		if err != nil {
			return nil, err
		}
		var views []string
		for _, it := range partitions {
			views = append(views, fmt.Sprintf("%d:%d:%s:%s", it.ID, it.Leader, ids(it.Replicas), ids(it.ISR)))
		}
		return views, nil
	case "setting":
		value, err := client.Setting(words[1], words[2])
		return []string{value}, err
	case "produce":
		records, err := ReadAll(words[3])
		if err != nil {
			return nil, err
		}
		return []string{strconv.Itoa(len(records))}, client.Produce(words[1], words[2], records)
	case "consume":
		since := int64(-1)
		if words[2] != "-" {
			var err error
			if since, err = strconv.ParseInt(words[2], 10, 64); err != nil {
				return nil, err
			}
		}
		count, err := consume(client, words[1], since, words[3])
		return []string{strconv.Itoa(count)}, err
	}
	return nil, fmt.Errorf("no such command: %v", words)
}

func ids(numbers []int32) string {
	var texts []string
	for _, it := range numbers {
		texts = append(texts, strconv.Itoa(int(it)))
	}
	return strings.Join(texts, ",")
}

func consume(client Client, topic string, since int64, path string) (int, error) {
	file, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	out := bufio.NewWriterSize(file, 1<<16)
	count := 0
	err = client.Consume(topic, since, func(record Record) error {
		count++
		_, err := out.Write(encode(record))
		return err
	})
	if err != nil {
		return count, err
	}
	return count, out.Flush()
}

func appendBytes(to, data []byte) []byte {
	if data == nil {
		return binary.BigEndian.AppendUint32(to, ^uint32(0))
	}
	return append(binary.BigEndian.AppendUint32(to, uint32(len(data))), data...)
}

func encode(record Record) []byte {
	data := binary.BigEndian.AppendUint32(nil, uint32(record.Partition))
	data = binary.BigEndian.AppendUint64(data, uint64(record.Offset))
	data = binary.BigEndian.AppendUint64(data, uint64(record.Timestamp))
	data = appendBytes(appendBytes(data, record.Key), record.Value)
	data = binary.BigEndian.AppendUint32(data, uint32(len(record.Headers)))
	for _, it := range record.Headers {
		data = appendBytes(appendBytes(data, []byte(it.Name)), it.Value)
	}
	return data
}

type reader struct {
	data []byte
	err  error
}

func (r *reader) take(size int) []byte {
	if r.err == nil && (size < 0 || size > len(r.data)) {
		r.err = io.ErrUnexpectedEOF
	}
	if r.err != nil {
		return make([]byte, 8)
	}
	taken := r.data[:size:size]
	r.data = r.data[size:]
	return taken
}

func (r *reader) i32() int32 { return int32(binary.BigEndian.Uint32(r.take(4))) }
func (r *reader) i64() int64 { return int64(binary.BigEndian.Uint64(r.take(8))) }

func (r *reader) bytes() []byte {
	size := r.i32()
	if size < 0 {
		return nil
	}
	return r.take(int(size))
}

// ReadAll reads a file of records.
func ReadAll(path string) ([]Record, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	in := &reader{data: data}
	var records []Record
	for len(in.data) > 0 && in.err == nil {
		record := Record{Partition: in.i32(), Offset: in.i64(), Timestamp: in.i64(), Key: in.bytes(), Value: in.bytes()}
		for left := in.i32(); left > 0 && in.err == nil; left-- {
			record.Headers = append(record.Headers, Header{string(in.bytes()), in.bytes()})
		}
		records = append(records, record)
	}
	return records, in.err
}
