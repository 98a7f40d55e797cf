// kafkajs as a member of a group; says what tests/integration/groups/member.py describes.
'use strict'

const { Kafka, logLevel } = require('kafkajs')

const PARTITIONS_OF_A_TOPIC = 1000
const [, bootstrap, group, topic] = process.argv.slice(2)
const owned = new Set()
const read = new Map()

const say = (...words) => process.stdout.write([Date.now(), ...words].join(' ') + '\n')
const place = (name, partition) =>
  PARTITIONS_OF_A_TOPIC * Number(name.slice(name.lastIndexOf('-') + 1)) + partition

function own(places) {
  owned.clear()
  read.clear()
  places.forEach((one) => owned.add(one))
  say('owns', [...owned].sort((a, b) => a - b).join(',') || '-')
}

async function main() {
  const kafka = new Kafka({
    brokers: bootstrap.split(','),
    logLevel: logLevel.WARN,
    retry: { initialRetryTime: 200, maxRetryTime: 1000, retries: 1000 },
  })
  const consumer = kafka.consumer({
    groupId: group,
    sessionTimeout: Number(process.env.MEMBER_SESSION_MS),
    heartbeatInterval: Number(process.env.MEMBER_HEARTBEAT_MS),
    rebalanceTimeout: Number(process.env.MEMBER_REBALANCE_MS),
    metadataMaxAge: 2000,
    maxWaitTimeInMs: 200,
    allowAutoTopicCreation: false,
    retry: { initialRetryTime: 200, maxRetryTime: 1000, retries: 1000, restartOnFailure: async () => true },
  })
  const { GROUP_JOIN, REBALANCING, STOP, DISCONNECT, CRASH } = consumer.events
  consumer.on(GROUP_JOIN, ({ payload }) =>
    own(
      Object.entries(payload.memberAssignment).flatMap(([name, numbers]) =>
        numbers.map((number) => place(name, number))
      )
    )
  )
  for (const event of [REBALANCING, STOP, DISCONNECT, CRASH]) {
    consumer.on(event, () => own([]))
  }
  process.stdin.resume()
  process.stdin.on('end', async () => {
    own([]) // the events come only after others have been given what it leaves
    await consumer.disconnect()
    process.exit(0)
  })
  await consumer.connect()
  const subscription = topic.startsWith('^') ? new RegExp(topic) : topic
  await consumer.subscribe({ topics: [subscription], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic: name, partition, message }) => {
      say('read', place(name, partition), message.offset)
      if (owned.has(place(name, partition))) {
        read.set(place(name, partition), { topic: name, partition, offset: String(BigInt(message.offset) + 1n) })
      }
    },
  })
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, 250))
    const places = [...read.values()]
    read.clear()
    if (places.length) {
      try {
        await consumer.commitOffsets(places)
        places.forEach((one) => say('committed', place(one.topic, one.partition), one.offset))
      } catch (error) {
        // another generation, or a coordinator on its way
      }
    }
  }
}

process.on('unhandledRejection', () => {})
main()
