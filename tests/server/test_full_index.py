"""A broker whose offset index is full, as clients and operators see it (rule 25)."""

import asyncio
from dataclasses import replace

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.server.test_large_produce import one_batch_each, producer_of, sent, topic_of
from tests.server.test_node import OPTIONS, new_world, running

from lakelog.kafka_client.dialing import dial
from lakelog.log.options import LogOptions
from lakelog.model.errors import RETRIABLE, ErrorCode
from lakelog.testing.broker import EmbeddedBroker, EmbeddedOptions
from lakelog.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

SMALL = LogOptions(linger_ms=0, index_bytes_max=2_000, index_throttle_ms_max=5)
PATIENCE_S = 20.0


def test_a_full_index_is_a_retriable_refusal_that_says_why_and_ends_with_its_cause() -> None:
    async def scenario() -> None:
        async with running(new_world(), replace(OPTIONS, log=SMALL)) as node:
            value = node.metrics.registry.get_sample_value
            async with await dial(str(node.address)) as client:
                topic = await topic_of(client, "old", 1)
                other = await topic_of(client, "new", 3)
                producer = await producer_of(client)
                (row,) = await sent(client, one_batch_each(topic, range(1), 0, producer))
                sequence = 1
                while not row.error_code:
                    assert sequence < 1_000, "the index has no limit"
                    (row,) = await sent(client, one_batch_each(topic, range(1), sequence, producer))
                    sequence += 1
                code = row.error_code
                assert code == ErrorCode.NOT_ENOUGH_REPLICAS
                assert code in RETRIABLE
                assert "log.index_bytes_max" in (row.error_message or "")
                rows = await sent(client, one_batch_each(other, range(3), 0, producer))
                assert [row.error_code for row in rows] == [code] * 3
                assert value("lakelog_index_bytes_max") == 2_000
                assert (value("lakelog_index_bytes") or 0) >= 2_000
                assert value("lakelog_index_refusals_total") == 2
                gone = DeleteTopicsRequest((DeleteTopicState(topic_id=topic),), timeout_ms=5_000)
                answer = await client.call(gone, DeleteTopicsResponse)
                assert answer.responses[0].error_code == 0
                rows = await sent(client, one_batch_each(other, range(3), 0, producer))
                assert [(row.error_code, row.base_offset) for row in rows] == [(0, 0)] * 3
                assert (value("lakelog_index_bytes") or 0) < 2_000

    asyncio.run(scenario())


def test_a_real_producer_waits_for_room_and_loses_nothing() -> None:
    acknowledged: list[int] = []

    def delivered(error: object, message: object) -> None:
        assert error is None, error
        acknowledged.append(message.offset())  # type: ignore[attr-defined]  # a Message

    with EmbeddedBroker(EmbeddedOptions(log=SMALL)) as broker:
        broker.create_topic("t")
        settings = {"bootstrap.servers": broker.bootstrap, "retry.backoff.ms": 10}
        producer = Producer({**settings, "enable.idempotence": True, "batch.num.messages": 1})
        for number in range(60):
            producer.produce("t", value=b"%d" % number, on_delivery=delivered)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        trimmed, rounds = 0, 0
        while producer.flush(0.2):
            rounds += 1
            assert rounds < 100, acknowledged
            trimmed = max(len(acknowledged) - 1, 0)  # -1 would be the end of the log
            (done,) = admin.delete_records([TopicPartition("t", 0, trimmed)]).values()
            done.result(PATIENCE_S)
        assert rounds >= 2  # 60 records do not fit at once
        assert acknowledged == list(range(60))
        group = {"group.id": "unused", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, **group})
        consumer.assign([TopicPartition("t", 0, trimmed)])
        for number in range(trimmed, 60):
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            assert (message.offset(), message.value()) == (number, b"%d" % number)
        consumer.close()
