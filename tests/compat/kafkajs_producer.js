// Writes the records of one job file with kafkajs and its default settings.
'use strict'

const fs = require('fs')
const { Kafka, CompressionCodecs, CompressionTypes, logLevel } = require('kafkajs')
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')

const CHUNK_RECORDS = 1000
const TYPES = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
}

const bytes = (text) => (text === null ? null : Buffer.from(text, 'base64'))

const message = (record) => ({
  key: bytes(record.key),
  value: bytes(record.value),
  partition: record.partition,
  timestamp: record.timestamp,
  headers: Object.fromEntries(
    Object.entries(record.headers).map(([name, values]) => [name, values.map(bytes)]),
  ),
})

async function main(path) {
  const job = JSON.parse(fs.readFileSync(path, 'utf8'))
  const kafka = new Kafka({ brokers: [job.bootstrap], logLevel: logLevel.ERROR })
  const producer = kafka.producer()
  await producer.connect()
  for (const block of job.blocks) {
    for (let start = 0; start < block.messages.length; start += CHUNK_RECORDS) {
      const messages = block.messages.slice(start, start + CHUNK_RECORDS).map(message)
      await producer.send({ topic: job.topic, messages, compression: TYPES[block.codec] })
    }
  }
  await producer.disconnect()
}

main(process.argv[2]).catch((error) => {
  console.error(error)
  process.exit(1)
})
