"""Subscriptions and assignments of classic consumers: bytes of real clients, then any bytes."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.kafka_python import message_classes

from lakelog.wire.codec import (
    VERSION_MAX,
    ConsumerAssignment,
    ConsumerSubscription,
    ConsumerTopicPartitions,
    decode_assignment,
    decode_subscribed_topics,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from lakelog.wire.schema import ProtocolError

T = TypeVar("T")
VERSIONS = range(VERSION_MAX + 1)
ORDERS = ConsumerTopicPartitions("orders", (0, 1, 2, 3))

# What these clients wrote into a group of a real Kafka broker.
SUBSCRIPTIONS = {
    "librdkafka 2.16": (
        "00030000000200066f726465727300087061796d656e74730000000000000000ffffffff0000",
        ConsumerSubscription(("orders", "payments"), user_data=b"", rack_id=""),
    ),
    "librdkafka 2.16 with a rack": (
        "00030000000100066f72646572730000000000000000ffffffff00027230",
        ConsumerSubscription(("orders",), user_data=b"", rack_id="r0"),
    ),
    "Java 4.3, cooperative": (
        "00030000000100066f726465727300000004ffffffff00000000ffffffff00026a7a",
        ConsumerSubscription(("orders",), user_data=b"\xff\xff\xff\xff", rack_id="jz"),
    ),
    "aiokafka 0.14": (
        "00000000000200087061796d656e747300066f726465727300000000",
        ConsumerSubscription(("payments", "orders"), user_data=b""),
    ),
    "kafka-python 3.0": (
        "00000000000100066f726465727300000000",
        ConsumerSubscription(("orders",), user_data=b""),
    ),
}
ASSIGNMENTS = {
    "librdkafka 2.16": (
        (
            "00000000000200087061796d656e7473000000010000000100066f7264657273"
            "00000002000000020000000300000000"
        ),
        ConsumerAssignment(
            (
                ConsumerTopicPartitions("payments", (1,)),
                ConsumerTopicPartitions("orders", (2, 3)),
            ),
            user_data=b"",
        ),
    ),
    "Java 4.3": (
        "00030000000100066f72646572730000000400000000000000010000000200000003ffffffff",
        ConsumerAssignment((ORDERS,)),
    ),
    "kafka-python 3.0": (
        "00000000000100066f7264657273000000040000000000000001000000020000000300000000",
        ConsumerAssignment((ORDERS,), user_data=b""),
    ),
}

names = st.text(max_size=10)
blobs = st.none() | st.binary(max_size=10)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)
parts = st.lists(
    st.builds(ConsumerTopicPartitions, names, st.lists(int32s, max_size=4).map(tuple)),
    max_size=3,
).map(tuple)
subscriptions = st.builds(
    ConsumerSubscription,
    st.lists(names, max_size=4).map(tuple),
    blobs,
    parts,
    int32s,
    st.none() | names,
)
assignments = st.builds(ConsumerAssignment, parts, blobs)


@pytest.mark.parametrize("client", SUBSCRIPTIONS)
def test_a_real_clients_subscription_is_read_and_written_as_it_is(client: str) -> None:
    text, expected = SUBSCRIPTIONS[client]
    data = bytes.fromhex(text)
    assert decode_subscription(data) == expected
    assert encode_subscription(expected, data[1]) == data
    assert decode_subscribed_topics(data) == expected.topics


@pytest.mark.parametrize("client", ASSIGNMENTS)
def test_a_real_clients_assignment_is_read_and_written_as_it_is(client: str) -> None:
    text, expected = ASSIGNMENTS[client]
    data = bytes.fromhex(text)
    assert decode_assignment(data) == expected
    assert encode_assignment(expected, data[1]) == data


@pytest.mark.parametrize("version", VERSIONS)
def test_another_program_reads_what_is_written(version: int) -> None:
    theirs: Any = message_classes()["ConsumerProtocolSubscription"]
    ours = ConsumerSubscription(("a", "b"), b"data", (ORDERS,), generation_id=7, rack_id="z")
    read = theirs.decode(encode_subscription(ours, version))
    assert (read.topics, read.user_data) == (["a", "b"], b"data")
    if version >= 1:
        owned = [(each.topic, each.partitions) for each in read.owned_partitions]
        assert owned == [("orders", [0, 1, 2, 3])]
    if version >= 2:
        assert read.generation_id == 7
    if version >= 3:
        assert read.rack_id == "z"
    theirs = message_classes()["ConsumerProtocolAssignment"]
    given_out = theirs.decode(encode_assignment(ConsumerAssignment((ORDERS,)), version))
    found = [(each.topic, each.partitions) for each in given_out.assigned_partitions]
    assert found == [("orders", [0, 1, 2, 3])]


def test_a_version_keeps_the_fields_that_it_has() -> None:
    full = ConsumerSubscription(("a",), None, (ORDERS,), generation_id=7, rack_id="z")
    read = [decode_subscription(encode_subscription(full, version)) for version in VERSIONS]
    assert [each.owned_partitions for each in read] == [(), (ORDERS,), (ORDERS,), (ORDERS,)]
    assert [each.generation_id for each in read] == [-1, -1, 7, 7]
    assert [each.rack_id for each in read] == [None, None, None, "z"]


def test_a_newer_version_is_read_as_the_newest_we_know() -> None:
    full = ConsumerSubscription(("a",), None, (ORDERS,), generation_id=7, rack_id="z")
    newer = b"\x00\x09" + encode_subscription(full)[2:] + b"what a later version adds"
    assert decode_subscription(newer) == full
    assignment = b"\x00\x09" + encode_assignment(ConsumerAssignment((ORDERS,)))[2:] + b"more"
    assert decode_assignment(assignment) == ConsumerAssignment((ORDERS,))


def test_topics_are_found_where_a_client_left_fields_of_its_version_out() -> None:
    short = b"\x00\x01" + encode_subscription(ConsumerSubscription(("a", "b")), 0)[2:]
    with pytest.raises(ProtocolError):
        decode_subscription(short)
    assert decode_subscribed_topics(short) == ("a", "b")


@pytest.mark.parametrize(
    "text", ["", "00", "ffff00000000ffffffff", "0000", "00007fffffff", "0000ffffffff"]
)
def test_what_is_no_message_is_refused(text: str) -> None:
    data = bytes.fromhex(text)
    for decoder in (decode_subscription, decode_subscribed_topics, decode_assignment):
        with pytest.raises(ProtocolError):
            decoder(data)


@given(subscriptions, assignments)
def test_what_is_written_is_read_back(
    subscription: ConsumerSubscription, assignment: ConsumerAssignment
) -> None:
    assert decode_subscription(encode_subscription(subscription)) == subscription
    for version in VERSIONS:
        assert decode_assignment(encode_assignment(assignment, version)) == assignment
        topics = decode_subscribed_topics(encode_subscription(subscription, version))
        assert topics == subscription.topics


@given(subscriptions, st.sampled_from(VERSIONS), st.data())
def test_a_cut_off_message_is_refused(
    subscription: ConsumerSubscription, version: int, data: st.DataObject
) -> None:
    whole = encode_subscription(subscription, version)
    size = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ProtocolError):
        decode_subscription(whole[:size])


def damaged(message: bytes, place: int, byte: int) -> bytes:
    place %= len(message)
    return message[:place] + bytes([byte]) + message[place + 1 :]


@given(
    st.binary(max_size=60)
    | st.builds(
        damaged,
        subscriptions.map(encode_subscription) | assignments.map(encode_assignment),
        st.integers(0, 500),
        st.integers(0, 255),
    )
)
def test_any_bytes_are_refused_or_read_as_what_can_be_written(data: bytes) -> None:
    assignment = read(decode_assignment, data)
    if assignment is not None:
        assert decode_assignment(encode_assignment(assignment)) == assignment
    subscription = read(decode_subscription, data)
    topics = read(decode_subscribed_topics, data)
    if subscription is not None:
        assert decode_subscription(encode_subscription(subscription)) == subscription
        assert topics == subscription.topics


def read(decoder: Callable[[memoryview], T], data: bytes) -> T | None:
    try:
        return decoder(memoryview(data))
    except ProtocolError:
        return None
