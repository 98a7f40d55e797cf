// kafkajs as a program of the matrix.  It reads in consumer groups only.
'use strict'

const { randomUUID } = require('node:crypto')
const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = require('kafkajs')
const lz4 = require('lz4-napi')
const snappy = require('kafkajs-snappy')
const zstd = require('@bokuweb/zstd-wasm')
const { version } = require('kafkajs/package.json')
const { Progress, serve } = require('./contract.js')

const SEND_BYTES = 500000
const TOPIC = 2

CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  // Of independent blocks: Kafka reads no others.
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: data => lz4.decompressFrame(data)
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async data => Buffer.from(zstd.decompress(data))
})
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD
}

function byName (headers) {
  const found = {}
  for (const [name, value] of headers) {
    if (!(name in found)) found[name] = value
    else if (Array.isArray(found[name])) found[name].push(value)
    else found[name] = [found[name], value]
  }
  return found
}

function inOrder (headers) {
  return Object.entries(headers ?? {}).flatMap(
    ([name, value]) => (Array.isArray(value) ? value.map(it => [name, it]) : [[name, value]])
  )
}

class Client {
  constructor (bootstrap) {
    this.kafka = new Kafka({ brokers: bootstrap.split(','), logLevel: logLevel.ERROR })
  }

  // A new one for every command: it asks for the metadata of all topics that it ever met, and fails
  // when one of them was deleted.
  async withAdmin (work) {
    const admin = this.kafka.admin()
    await admin.connect()
    try {
      return await work(admin)
    } finally {
      await admin.disconnect()
    }
  }

  async create (topic, numPartitions, replicationFactor, config) {
    const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }))
    const topics = [{ topic, numPartitions, replicationFactor, configEntries }]
    await this.withAdmin(admin => admin.createTopics({ topics }))
  }

  list () {
    return this.withAdmin(admin => admin.listTopics())
  }

  async describe (topic) {
    const { topics } = await this.withAdmin(admin => admin.fetchTopicMetadata({ topics: [topic] }))
    return topics[0].partitions.map(
      ({ partitionId, leader, replicas, isr }) => ({ partition: partitionId, leader, replicas, isr })
    )
  }

  async setting (topic, name) {
    const { resources } = await this.withAdmin(admin => admin.describeConfigs({
      includeSynonyms: false,
      resources: [{ type: TOPIC, name: topic, configNames: [name] }]
    }))
    return resources[0].configEntries.find(it => it.configName === name).configValue
  }

  async produce (topic, codec, records) {
    const producer = this.kafka.producer()
    await producer.connect()
    try {
      let messages = []
      let size = 0
      const send = () => producer.send({ topic, acks: -1, compression: CODECS[codec], messages })
      for (const it of records) {
        const { partition, key, value } = it
        const message = { partition, key, value, headers: byName(it.headers) }
        if (it.timestamp >= 0n) message.timestamp = String(it.timestamp)
        messages.push(message)
        size += (value?.length ?? 0) + 100
        if (size > SEND_BYTES) {
          await send()
          messages = []
          size = 0
        }
      }
      if (messages.length > 0) await send()
    } finally {
      await producer.disconnect()
    }
  }

  async consume (topic, since, found) {
    const places = await this.withAdmin(admin => admin.fetchTopicOffsets(topic))
    const ends = Object.fromEntries(places.map(it => [it.partition, BigInt(it.high)]))
    const starts = Object.fromEntries(places.map(it => [it.partition, BigInt(it.low)]))
    if (since !== null) {
      const later = await this.withAdmin(
        admin => admin.fetchTopicOffsetsByTimestamp(topic, Number(since))
      )
      for (const it of later) starts[it.partition] = BigInt(it.offset)
    }
    const progress = new Progress(starts, ends)
    if (progress.done) return
    const consumer = this.kafka.consumer({ groupId: `matrix-${randomUUID()}`, maxWaitTimeInMs: 100 })
    await consumer.connect()
    let failure = null
    try {
      await consumer.subscribe({ topic, fromBeginning: true })
      await consumer.run({
        autoCommit: false,
        eachBatchAutoResolve: true,
        eachBatch: async ({ batch }) => {
          try {
            for (const it of batch.messages) {
              const offset = BigInt(it.offset)
              if (!progress.saw(batch.partition, offset)) continue
              const { key, value, timestamp } = it
              found({ partition: batch.partition, offset, timestamp, key, value, headers: inOrder(it.headers) })
            }
          } catch (error) {
            failure = error
          }
        }
      })
      if (since !== null) {
        for (const partition of progress.open) {
          consumer.seek({ topic, partition, offset: String(starts[partition]) })
        }
      }
      await progress.wait()
    } finally {
      await consumer.disconnect()
    }
    if (failure) throw failure
  }

  async close () {}
}

async function main () {
  await zstd.init()
  await serve('kafkajs', version, Object.keys(CODECS), new Client(process.argv[2]))
}

main()
