// A member on kafkajs: its own RoundRobinAssigner, or a range assigner that other clients share.
// Reads until standard input ends; notes what happens to it as notes.py describes.
'use strict'

const fs = require('fs')
const { Kafka, AssignerProtocol, logLevel } = require('kafkajs')

const job = Object.fromEntries(
  process.argv.slice(2).map((argument) => {
    const at = argument.indexOf('=')
    return [argument.slice(0, at), argument.slice(at + 1)]
  }),
)
const PARTITIONS = Number(job.partitions)
const CERTAIN = ['ILLEGAL_GENERATION', 'UNKNOWN_MEMBER_ID', 'REBALANCE_IN_PROGRESS', 'FENCED_INSTANCE_ID']

const file = fs.openSync(job.notes, 'a')
const note = (text) => fs.writeSync(file, `${Date.now()} ${text}\n`)
const shown = (partitions) => [...partitions].sort((a, b) => a - b).join(',') || '-'
const fault = (error) => note(`fault ${String((error && error.message) || error).replace(/\s+/g, ' ')}`)

// The assignor that all clients call "range": contiguous partitions, the first members get one more.
const range = ({ cluster }) => ({
  name: 'range',
  version: 0,
  protocol({ topics }) {
    const metadata = AssignerProtocol.MemberMetadata.encode({
      version: 0,
      topics,
      userData: Buffer.alloc(0),
    })
    return { name: 'range', metadata }
  },
  async assign({ members, topics }) {
    const ids = members.map(({ memberId }) => memberId).sort()
    const assignment = Object.fromEntries(ids.map((id) => [id, {}]))
    for (const topic of topics) {
      const partitions = cluster
        .findTopicPartitionMetadata(topic)
        .map(({ partitionId }) => partitionId)
        .sort((a, b) => a - b)
      const least = Math.floor(partitions.length / ids.length)
      const more = partitions.length % ids.length
      ids.forEach((id, at) => {
        const start = least * at + Math.min(at, more)
        assignment[id][topic] = partitions.slice(start, start + least + (at < more ? 1 : 0))
      })
    }
    return ids.map((memberId) => ({
      memberId,
      memberAssignment: AssignerProtocol.MemberAssignment.encode({
        version: 0,
        assignment: assignment[memberId],
        userData: Buffer.alloc(0),
      }),
    }))
  },
})

let owned = new Set()
let token = 0

function misplaced(partition, messages) {
  const wrong = messages.find(
    ({ offset, value }) => Number(value.toString()) !== Number(offset) * PARTITIONS + partition,
  )
  if (wrong) fault(`partition ${partition} offset ${wrong.offset} holds ${wrong.value.toString()}`)
}

// Batches come without holes here: nothing is compacted and nothing is transactional.
async function onBatch(consumer, batch) {
  const { partition, messages } = batch
  if (messages.length === 0 || !owned.has(partition)) return
  misplaced(partition, messages)
  const end = Number(messages[messages.length - 1].offset) + 1
  note(`read ${partition} ${messages[0].offset} ${end}`)
  token += 1
  const mine = token
  note(`asked ${mine} ${partition}:${end}`)
  try {
    await consumer.commitOffsets([{ topic: job.topic, partition, offset: String(end) }])
    note(`acked ${mine} ${partition}:${end}`)
  } catch (error) {
    note(`${CERTAIN.includes(error.type) ? 'refused' : 'unknown'} ${mine} ${error.type} ${error.message}`)
    throw error
  }
}

function follow(consumer) {
  const release = (kind) => {
    if (owned.size > 0) note(`${kind} ${shown(owned)}`)
    owned = new Set()
  }
  consumer.on(consumer.events.REBALANCING, () => release('revoked'))
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    release('lost')
    owned = new Set(payload.memberAssignment[job.topic] || [])
    note(`assigned - ${shown(owned)}`)
  })
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    release('lost')
    if (!payload.restart) fault(payload.error)
  })
}

async function main() {
  const kafka = new Kafka({
    clientId: job.instance || job.name,
    brokers: job.bootstrap.split(','),
    logLevel: logLevel.ERROR,
    retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 30 },
  })
  const shared = job.flavour === 'range' ? { partitionAssigners: [range] } : {}
  const consumer = kafka.consumer({
    groupId: job.group,
    sessionTimeout: Number(job.session_ms),
    heartbeatInterval: Number(job.heartbeat_ms),
    rebalanceTimeout: 30000,
    maxWaitTimeInMs: 200,
    metadataMaxAge: Number(job.metadata_ms),
    ...shared,
  })
  follow(consumer)
  await consumer.connect()
  await consumer.subscribe({ topics: [job.topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, heartbeat }) => {
      await onBatch(consumer, batch)
      await heartbeat()
    },
  })
  process.stdin.resume()
  process.stdin.on('end', async () => {
    // The group goes on before disconnect() returns.
    if (owned.size > 0) note(`revoked ${shown(owned)}`)
    owned = new Set()
    await consumer.disconnect()
    note('left')
    process.exit(0)
  })
}

process.on('unhandledRejection', (error) => {
  fault(error)
  process.exit(1)
})
main()
