// @platformatic/kafka as a program of the matrix.  It reads in consumer groups.
'use strict'

const { randomUUID } = require('node:crypto')
const { readFileSync } = require('node:fs')
const { Admin, Consumer, ListOffsetTimestamps, Producer, ConfigResourceTypes } = require('@platformatic/kafka')
const { Progress, serve } = require('./contract.js')

const SEND_BYTES = 500000

class Client {
  constructor (bootstrap) {
    this.options = { clientId: 'matrix', bootstrapBrokers: bootstrap.split(','), retries: 5 }
    this.admin = new Admin(this.options)
  }

  async create (topic, partitions, replicas, config) {
    const configs = Object.entries(config).map(([name, value]) => ({ name, value }))
    await this.admin.createTopics({ topics: [topic], partitions, replicas, configs })
  }

  list () {
    return this.admin.listTopics()
  }

  async describe (topic) {
    const metadata = await this.admin.metadata({ topics: [topic], forceUpdate: true })
    return metadata.topics.get(topic).partitions.map(
      ({ leader, replicas, isr }, partition) => ({ partition, leader, replicas, isr })
    )
  }

  async setting (topic, name) {
    const resources = [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: topic, configurationKeys: [name] }]
    const found = await this.admin.describeConfigs({ resources })
    return found[0].configs.find(it => it.name === name).value
  }

  async produce (topic, compression, records) {
    const producer = new Producer(this.options)
    try {
      let messages = []
      let size = 0
      const send = () => producer.send({ messages, compression, acks: -1 })
      for (const it of records) {
        const message = { topic, partition: it.partition, headers: new Map(it.headers.map(([name, value]) => [Buffer.from(name), value])) }
        if (it.key !== null) message.key = it.key
        if (it.value !== null) message.value = it.value
        if (it.timestamp >= 0n) message.timestamp = it.timestamp
        messages.push(message)
        size += (it.value?.length ?? 0) + 100
        if (size > SEND_BYTES) {
          await send()
          messages = []
          size = 0
        }
      }
      if (messages.length > 0) await send()
    } finally {
      await producer.close()
    }
  }

  async consume (topic, since, found) {
    const consumer = new Consumer({ ...this.options, groupId: `matrix-${randomUUID()}`, maxWaitTime: 100 })
    try {
      const offsets = async timestamp => Object.fromEntries(
        (await consumer.listOffsets({ topics: [topic], timestamp })).get(topic).entries()
      )
      const ends = await offsets(ListOffsetTimestamps.LATEST)
      const starts = await offsets(since ?? ListOffsetTimestamps.EARLIEST)
      const progress = new Progress(starts, ends)
      if (progress.done) return
      const places = Object.keys(ends).map(Number).map(
        partition => ({ topic, partition, offset: progress.open.has(partition) ? starts[partition] : ends[partition] })
      )
      const stream = await consumer.consume({ topics: [topic], mode: 'manual', offsets: places, autocommit: false })
      let failure = null
      stream.on('error', error => { failure = error })
      stream.on('data', it => {
        if (!progress.saw(it.partition, it.offset)) return
        const { partition, offset, timestamp, key, value } = it
        const headers = it.headerEntries.map(([name, content]) => [name.toString(), content])
        found({ partition, offset, timestamp, key, value, headers })
      })
      await Promise.race([
        progress.wait(),
        new Promise((resolve, reject) => stream.once('error', reject))
      ])
      await stream.close()
      if (failure) throw failure
    } finally {
      await consumer.close(true)
    }
  }

  close () {
    return this.admin.close()
  }
}

const { version } = JSON.parse(readFileSync(`${__dirname}/node_modules/@platformatic/kafka/package.json`))

serve('platformatic', version, ['none', 'gzip', 'snappy', 'lz4', 'zstd'], new Client(process.argv[2]))
