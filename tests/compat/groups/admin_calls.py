"""The calls that consoles such as Kafbat and AKHQ make, through three other admin clients."""

import asyncio
import warnings
from typing import Protocol

import aiokafka.admin
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from tests.compat.groups.scene import PARTITIONS, Scene

with warnings.catch_warnings():
    # kafka-python 3.0 reads its schemas by a call that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.admin import KafkaAdminClient, MemberToRemove
    from kafka.errors import NoError
    from kafka.structs import OffsetAndMetadata

TOPIC = "tools"
CLASSIC, CONSUMER = "tools-classic", "tools-consumer"
STATIC = "confluent-1"
TIMEOUT_S = 30.0
END = 100


class Compare(Protocol):
    """What is asked of the one who keeps findings."""

    def same(self, what: str, got: object, wanted: object) -> None:
        """Keep what differs."""


def admin_calls(scene: Scene, found: Compare, *, live: bool) -> None:
    """Make all calls: on live groups, or on those whose members have left."""
    bootstrap = scene.cluster.bootstrap
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        if live:
            confluent_live(client, found)
            kafka_python_live(admin, found)
            asyncio.run(aiokafka_live(bootstrap, found))
        else:
            kafka_python_empty(admin, found)
            confluent_empty(client, found)
    finally:
        admin.close()


def confluent_live(client: AdminClient, found: Compare) -> None:
    """List with filters, describe, and read the offsets of groups."""
    listed = client.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(TIMEOUT_S)
    groups = {group.group_id: group.type for group in listed.valid}
    wanted = {CLASSIC: ConsumerGroupType.CLASSIC, CONSUMER: ConsumerGroupType.CONSUMER}
    found.same("confluent list by state", groups, wanted)
    listed = client.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(TIMEOUT_S)
    found.same("confluent list by type", [each.group_id for each in listed.valid], [CONSUMER])
    described = client.describe_consumer_groups([CLASSIC, CONSUMER])
    for group, strategy in ((CLASSIC, "range"), (CONSUMER, "uniform")):
        row = described[group].result(TIMEOUT_S)
        owned = [
            place.partition
            for member in row.members
            for place in member.assignment.topic_partitions
        ]
        found.same(f"confluent describe {group}", sorted(owned), list(range(PARTITIONS)))
        found.same(f"confluent strategy of {group}", row.partition_assignor, strategy)
        found.same(f"confluent state of {group}", row.state, ConsumerGroupState.STABLE)
        asked = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        places = asked[group].result(TIMEOUT_S).topic_partitions
        offsets = {place.partition: place.offset for place in places}
        found.same(f"confluent offsets of {group}", offsets, dict.fromkeys(range(PARTITIONS), END))
    instances = {
        member.group_instance_id for member in described[CLASSIC].result(TIMEOUT_S).members
    }
    found.same("confluent static members", instances, {None, STATIC})


def kafka_python_live(admin: KafkaAdminClient, found: Compare) -> None:
    """List with filters, describe, and read the offsets of several groups in one request."""
    listed = {row["group_id"]: row["group_state"] for row in admin.list_groups()}
    found.same("kafka-python list", listed, {CLASSIC: "Stable", CONSUMER: "Stable"})
    classic = [row["group_id"] for row in admin.list_groups(types_filter=["classic"])]
    found.same("kafka-python list by type", classic, [CLASSIC])
    empty = [row["group_id"] for row in admin.list_groups(states_filter=["Empty"])]
    found.same("kafka-python list by state", empty, [])
    row = admin.describe_groups([CLASSIC])[CLASSIC]
    seen = (row["group_state"], row["protocol_type"], row["protocol_data"], len(row["members"]))
    found.same("kafka-python describe", seen, ("Stable", "consumer", "range", 2))
    offsets = admin.list_group_offsets([CLASSIC, CONSUMER])
    for group in (CLASSIC, CONSUMER):
        plain = {place.partition: each.offset for place, each in offsets[group].items()}
        wanted = dict.fromkeys(range(PARTITIONS), END)
        found.same(f"kafka-python offsets of {group}", plain, wanted)
    place = kafka.TopicPartition(TOPIC, 0)
    answer = admin.alter_group_offsets(CLASSIC, {place: OffsetAndMetadata(1, "", -1)})
    found.same("kafka-python alter while in use", answer[place].__name__, "UnknownMemberIdError")


async def aiokafka_live(bootstrap: str, found: Compare) -> None:
    """The older versions of the same requests."""
    admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        listed = {row[0] for row in await admin.list_consumer_groups()}
        found.same("aiokafka list", listed, {CLASSIC, CONSUMER})
        offsets = await admin.list_consumer_group_offsets(CLASSIC)
        plain = {place.partition: each.offset for place, each in offsets.items()}
        found.same("aiokafka offsets", plain, dict.fromkeys(range(PARTITIONS), END))
    finally:
        await admin.close()


def kafka_python_empty(admin: KafkaAdminClient, found: Compare) -> None:
    """Remove the static member, then alter, reset and delete offsets."""
    gone = admin.remove_group_members(CLASSIC, [MemberToRemove(group_instance_id=STATIC)])
    found.same("kafka-python remove static member", [*gone.values()], [NoError])
    listed = {row["group_id"] for row in admin.list_groups(states_filter=["Empty"])}
    found.same("kafka-python list of empty groups", listed, {CLASSIC, CONSUMER})
    places = {kafka.TopicPartition(TOPIC, each): each for each in range(PARTITIONS)}
    wanted = {place: OffsetAndMetadata(at, f"note {at}", -1) for place, at in places.items()}
    for group in (CLASSIC, CONSUMER):
        answer = admin.alter_group_offsets(group, wanted)
        found.same(f"kafka-python alter {group}", set(answer.values()), {NoError})
        read = admin.list_group_offsets({group: list(places)})[group]
        got = {place: (each.offset, each.metadata) for place, each in read.items()}
        told = {place: (each.offset, each.metadata) for place, each in wanted.items()}
        found.same(f"kafka-python offsets and metadata of {group}", got, told)
        first = kafka.TopicPartition(TOPIC, 0)
        answer = admin.delete_group_offsets(group, [first])
        found.same(f"kafka-python delete an offset of {group}", answer, {first: NoError})
        left = admin.list_group_offsets([group])[group]
        found.same(f"kafka-python offsets left in {group}", first in left, False)


def confluent_empty(client: AdminClient, found: Compare) -> None:
    """Alter offsets; make a group by altering, and delete it."""
    for group in (CLASSIC, CONSUMER, "tools-made"):
        places = [TopicPartition(TOPIC, each, END) for each in range(PARTITIONS)]
        asked = client.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])
        answer = asked[group].result(TIMEOUT_S).topic_partitions
        found.same(f"confluent alter {group}", [each.error for each in answer if each.error], [])
        again = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        offsets = {
            place.partition: place.offset
            for place in again[group].result(TIMEOUT_S).topic_partitions
        }
        found.same(f"confluent altered {group}", offsets, dict.fromkeys(range(PARTITIONS), END))
    client.delete_consumer_groups(["tools-made"])["tools-made"].result(TIMEOUT_S)
    listed = client.list_consumer_groups().result(TIMEOUT_S)
    groups = sorted(each.group_id for each in listed.valid)
    found.same("confluent list after delete", groups, sorted((CLASSIC, CONSUMER)))
