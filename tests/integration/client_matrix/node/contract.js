// What all Node programs of the matrix share: commands, answers and files of records, as contract.py
// describes them.  A record is {partition, offset, timestamp, key, value, headers: [[name, value]]};
// offset and timestamp are BigInt, keys and values Buffer or null.
'use strict'

const fs = require('node:fs')
const readline = require('node:readline')

const LIMIT_MS = 60000
const WRITE_BYTES = 1 << 22

function readRecords (path) {
  const data = fs.readFileSync(path)
  const records = []
  let position = 0
  function bytes () {
    const size = data.readInt32BE(position)
    position += 4
    if (size < 0) return null
    if (position + size > data.length) throw new Error('the file ends inside a record')
    position += size
    return data.subarray(position - size, position)
  }
  while (position < data.length) {
    const partition = data.readInt32BE(position)
    const timestamp = data.readBigInt64BE(position + 12)
    position += 20
    const key = bytes()
    const value = bytes()
    let left = data.readInt32BE(position)
    position += 4
    const headers = []
    for (; left > 0; left--) {
      const name = bytes().toString()
      headers.push([name, bytes()])
    }
    records.push({ partition, offset: -1n, timestamp, key, value, headers })
  }
  return records
}

class Writer {
  constructor (path) {
    this.count = 0
    this.file = fs.openSync(path, 'w')
    this.parts = []
    this.size = 0
  }

  #bytes (data) {
    const size = Buffer.alloc(4)
    size.writeInt32BE(data == null ? -1 : data.length)
    this.parts.push(size)
    this.size += 4
    if (data != null) {
      this.parts.push(data)
      this.size += data.length
    }
  }

  add (record) {
    const head = Buffer.alloc(20)
    head.writeInt32BE(record.partition, 0)
    head.writeBigInt64BE(BigInt(record.offset), 4)
    head.writeBigInt64BE(BigInt(record.timestamp), 12)
    this.parts.push(head)
    this.size += 20
    this.#bytes(record.key)
    this.#bytes(record.value)
    const count = Buffer.alloc(4)
    count.writeInt32BE(record.headers.length)
    this.parts.push(count)
    for (const [name, value] of record.headers) {
      this.#bytes(Buffer.from(name))
      this.#bytes(value)
    }
    this.count++
    if (this.size > WRITE_BYTES) this.#flush()
  }

  #flush () {
    const data = Buffer.concat(this.parts)
    for (let done = 0; done < data.length;) done += fs.writeSync(this.file, data, done)
    this.parts = []
    this.size = 0
  }

  close () {
    this.#flush()
    fs.closeSync(this.file)
  }
}

// Where to start and where a partition is done: {partition: BigInt} each.
class Progress {
  constructor (starts, ends) {
    this.starts = starts
    this.ends = ends
    this.open = new Set(Object.keys(ends).map(Number).filter(it => starts[it] >= 0n && starts[it] < ends[it]))
    this.last = Date.now()
  }

  // Whether the record is wanted.
  saw (partition, offset) {
    this.last = Date.now()
    const wanted = this.open.has(partition) && offset >= this.starts[partition] && offset < this.ends[partition]
    if (offset >= this.ends[partition] - 1n) this.open.delete(partition)
    return wanted
  }

  get done () {
    return this.open.size === 0
  }

  async wait () {
    while (!this.done) {
      if (Date.now() - this.last > LIMIT_MS) throw new Error(`nothing came, not done: ${[...this.open]}`)
      await new Promise(resolve => setTimeout(resolve, 5))
    }
  }
}

async function answer (client, words) {
  const [command, topic, ...rest] = words
  switch (command) {
    case 'create': {
      const config = Object.fromEntries(rest.slice(2).map(pair => {
        const at = pair.indexOf('=')
        return [pair.slice(0, at), pair.slice(at + 1)]
      }))
      await client.create(topic, Number(rest[0]), Number(rest[1]), config)
      return []
    }
    case 'list':
      return client.list()
    case 'describe': {
      const views = await client.describe(topic)
      views.sort((a, b) => a.partition - b.partition)
      return views.map(it => `${it.partition}:${it.leader}:${it.replicas}:${it.isr}`)
    }
    case 'setting':
      return [await client.setting(topic, rest[0])]
    case 'produce': {
      const records = readRecords(rest[1])
      await client.produce(topic, rest[0], records)
      return [records.length]
    }
    case 'consume': {
      const writer = new Writer(rest[1])
      try {
        await client.consume(topic, rest[0] === '-' ? null : BigInt(rest[0]), it => writer.add(it))
      } finally {
        writer.close()
      }
      return [writer.count]
    }
  }
  throw new Error(`no such command: ${words}`)
}

async function serve (library, version, codecs, client) {
  console.log(['ready', library, version, codecs.join(',')].join('\t'))
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let fields
    try {
      fields = ['ok', ...await answer(client, line.split('\t'))]
    } catch (error) {
      const causes = error.errors ? error.errors.map(String).join('; ') : ''
      fields = ['error', `${error.stack} ${causes}`.replaceAll(/\s+/g, ' ')]
    }
    console.log(fields.join('\t'))
  }
  await client.close()
  process.exit(0)
}

module.exports = { LIMIT_MS, Progress, serve }
