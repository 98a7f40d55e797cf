// node-rdkafka (librdkafka) as a program of the matrix.
'use strict'

const { AdminClient, CODES, KafkaConsumer, Producer, features, librdkafkaVersion } = require('node-rdkafka')
const { version } = require('node-rdkafka/package.json')
const { LIMIT_MS, Progress, serve } = require('./contract.js')

const HIGH_WATER = 50000

// The result of a call that takes a callback last.
function called (object, method, ...rest) {
  return new Promise((resolve, reject) => {
    object[method](...rest, (error, result) => (error ? reject(new Error(error.message)) : resolve(result)))
  })
}

function connected (client) {
  return called(client, 'connect', { timeout: LIMIT_MS })
}

class Client {
  constructor (bootstrap) {
    this.common = { 'metadata.broker.list': bootstrap }
    this.admin = AdminClient.create(this.common)
    this.reader = new KafkaConsumer({ ...this.common, 'group.id': 'none', 'enable.auto.commit': false }, {})
  }

  async create (topic, partitions, replicas, config) {
    const asked = { topic, num_partitions: partitions, replication_factor: replicas, config }
    await called(this.admin, 'createTopic', asked, LIMIT_MS)
  }

  async list () {
    const { topics } = await called(this.reader, 'getMetadata', { timeout: LIMIT_MS })
    return topics.map(it => it.name)
  }

  async describe (topic) {
    const { topics } = await called(this.reader, 'getMetadata', { topic, timeout: LIMIT_MS })
    return topics.find(it => it.name === topic).partitions.map(
      ({ id, leader, replicas, isrs }) => ({ partition: id, leader, replicas, isr: isrs })
    )
  }

  async setting () {
    throw new Error('node-rdkafka reads no settings')
  }

  async produce (topic, codec, records) {
    const producer = new Producer({ ...this.common, 'compression.codec': codec, 'linger.ms': 5, dr_cb: true }, { acks: -1 })
    producer.setPollInterval(10)
    await connected(producer)
    let left = records.length
    let failure = null
    producer.on('delivery-report', error => {
      if (error) failure = error
      left--
    })
    try {
      for (const it of records) {
        const headers = it.headers.map(([name, value]) => ({ [name]: value }))
        const timestamp = it.timestamp >= 0n ? Number(it.timestamp) : undefined
        for (;;) {
          try {
            producer.produce(topic, it.partition, it.value, it.key, timestamp, undefined, headers)
            break
          } catch (error) {
            if (error.code !== CODES.ERRORS.ERR__QUEUE_FULL) throw error
            await new Promise(resolve => setTimeout(resolve, 20))
          }
        }
        if (left % HIGH_WATER === 0) await new Promise(resolve => setImmediate(resolve))
      }
      await called(producer, 'flush', LIMIT_MS)
      for (const limit = Date.now() + LIMIT_MS; left > 0 && Date.now() < limit;) {
        await new Promise(resolve => setTimeout(resolve, 5))
      }
      if (failure) throw failure
      if (left > 0) throw new Error(`${left} were not acknowledged`)
    } finally {
      await called(producer, 'disconnect')
    }
  }

  async consume (topic, since, found) {
    const partitions = (await this.describe(topic)).map(it => it.partition)
    const starts = {}
    const ends = {}
    for (const partition of partitions) {
      const { lowOffset, highOffset } = await called(this.reader, 'queryWatermarkOffsets', topic, partition, LIMIT_MS)
      starts[partition] = BigInt(lowOffset)
      ends[partition] = BigInt(highOffset)
    }
    if (since !== null) {
      const asked = partitions.map(partition => ({ topic, partition, offset: Number(since) }))
      for (const it of await called(this.reader, 'offsetsForTimes', asked, LIMIT_MS)) {
        starts[it.partition] = it.offset >= 0 ? BigInt(it.offset) : ends[it.partition]
      }
    }
    const progress = new Progress(starts, ends)
    if (progress.done) return
    this.reader.assign([...progress.open].map(partition => ({ topic, partition, offset: Number(starts[partition]) })))
    this.reader.setDefaultConsumeTimeout(200)
    try {
      while (!progress.done) {
        for (const it of await called(this.reader, 'consume', 1000)) {
          const offset = BigInt(it.offset)
          if (!progress.saw(it.partition, offset)) continue
          const headers = (it.headers ?? []).flatMap(Object.entries)
          found({ partition: it.partition, offset, timestamp: it.timestamp, key: it.key, value: it.value, headers })
        }
        if (Date.now() - progress.last > LIMIT_MS) throw new Error(`nothing came, not done: ${[...progress.open]}`)
      }
    } finally {
      this.reader.unassign()
    }
  }

  async close () {
    this.admin.disconnect()
    await called(this.reader, 'disconnect')
  }
}

async function main () {
  const client = new Client(process.argv[2])
  await connected(client.reader)
  const codecs = ['none', 'gzip', 'snappy', 'lz4', 'zstd'].filter(it => it === 'none' || it === 'lz4' || features.includes(it))
  await serve('node-rdkafka', `${version} with librdkafka ${librdkafkaVersion}`, codecs, client)
}

main()
