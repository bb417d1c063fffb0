// A client process: franz-go produces as told on standard input (bench/jobs.py has the protocol).
//
// Records go to the partitions in turn, uncompressed, with the client's defaults otherwise: it is
// idempotent, and one request carries a batch of every partition that has one.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	poolSize      = 1000
	chunkRecords  = 500
	bufferedMax   = 100_000
	flushTimeout  = 120 * time.Second
	randomPercent = 25
	headerBytes   = 61 // of a record batch; the metrics count records alone
	produceKey    = 0
)

// job holds the fields of WriteJob that a producer needs.
type job struct {
	Bootstrap   string  `json:"bootstrap"`
	Topic       string  `json:"topic"`
	Partitions  int     `json:"partitions"`
	RecordBytes int     `json:"record_bytes"`
	BatchBytes  int32   `json:"batch_bytes"`
	LingerMs    float64 `json:"linger_ms"`
	Seconds     float64 `json:"seconds"`
	BytesMax    int64   `json:"bytes_max"`
	Seed        int64   `json:"seed"`
}

// outcome is Outcome of bench/jobs.py.
type outcome struct {
	PayloadBytes int64   `json:"payload_bytes"`
	Records      int64   `json:"records"`
	Seconds      float64 `json:"seconds"`
	Failures     int64   `json:"failures"`
	Requests     int64   `json:"requests"`
	BatchBytes   float64 `json:"batch_bytes"`
}

// counts follows what the client writes.
type counts struct {
	requests, batches, batchBytes atomic.Int64
}

// OnBrokerWrite counts Produce requests.
func (c *counts) OnBrokerWrite(
	_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error,
) {
	if key == produceKey && err == nil {
		c.requests.Add(1)
	}
}

// OnProduceBatchWritten counts batches.
func (c *counts) OnProduceBatchWritten(
	_ kgo.BrokerMetadata, _ string, _ int32, metrics kgo.ProduceBatchMetrics,
) {
	c.batches.Add(1)
	c.batchBytes.Add(int64(metrics.UncompressedBytes + headerBytes))
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	line, err := lines.ReadBytes('\n')
	check(err)
	var told job
	check(json.Unmarshal(line, &told))
	written := &counts{}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(told.Bootstrap),
		kgo.DefaultProduceTopic(told.Topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(told.BatchBytes),
		kgo.ProducerLinger(time.Duration(told.LingerMs*float64(time.Millisecond))),
		kgo.MaxBufferedRecords(bufferedMax),
		kgo.WithHooks(written),
	)
	check(err)
	check(client.Ping(context.Background()))
	values := payloads(told.RecordBytes, told.Seed)
	fmt.Println("ready")
	_, err = lines.ReadBytes('\n')
	check(err)
	result := produce(client, told, values)
	result.Requests = written.requests.Load()
	if batches := written.batches.Load(); batches > 0 {
		result.BatchBytes = float64(written.batchBytes.Load()) / float64(batches)
	}
	check(json.NewEncoder(os.Stdout).Encode(result))
	client.Close()
}

// produce writes until the time or the bytes are used up, and waits for every acknowledgement.
func produce(client *kgo.Client, told job, values [][]byte) outcome {
	var failures atomic.Int64
	done := func(_ *kgo.Record, err error) {
		if err != nil {
			failures.Add(1)
		}
	}
	started := time.Now()
	var sent int64
	for time.Since(started).Seconds() < told.Seconds && sent*int64(told.RecordBytes) < told.BytesMax {
		for i := 0; i < chunkRecords; i++ {
			record := kgo.Record{
				Partition: int32(sent % int64(told.Partitions)),
				Value:     values[sent%int64(len(values))],
			}
			client.Produce(context.Background(), &record, done)
			sent++
		}
	}
	context, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	check(client.Flush(context))
	seconds := time.Since(started).Seconds()
	delivered := sent - failures.Load()
	return outcome{
		PayloadBytes: delivered * int64(told.RecordBytes),
		Records:      delivered,
		Seconds:      seconds,
		Failures:     failures.Load(),
	}
}

// payloads returns a pool of values of which a quarter of the bytes are random.
func payloads(size int, seed int64) [][]byte {
	source := rand.New(rand.NewSource(seed))
	pool := make([][]byte, poolSize)
	for i := range pool {
		value := make([]byte, size)
		source.Read(value[:size*randomPercent/100])
		for at := size * randomPercent / 100; at < size; at++ {
			value[at] = 'x'
		}
		pool[i] = value
	}
	return pool
}

// check ends the process where it cannot go on; the parent says what it printed.
func check(err error) {
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
