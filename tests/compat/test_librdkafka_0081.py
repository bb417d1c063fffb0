"""What librdkafka's admin test 0081 asks of a broker, through confluent-kafka, one test for each.

Left out is what it asks of ACLs and of users with SCRAM credentials, which need a broker that keeps
them: there the answers are those of a Kafka without an authorizer and without users.
"""

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    ElectionType,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from lakelog.testing.broker import EmbeddedBroker

WAIT_S = 30.0
BROKER, TOPIC, GROUP = ResourceType.BROKER, ResourceType.TOPIC, ResourceType.GROUP
SET, DELETE = AlterConfigOpType.SET, AlterConfigOpType.DELETE
APPEND, SUBTRACT = AlterConfigOpType.APPEND, AlterConfigOpType.SUBTRACT
UNKNOWN_TOPIC = KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: EmbeddedBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def code(future: "Future[Any]") -> int:
    """The error code of an answer, 0 for none."""
    try:
        future.result(WAIT_S)
    except KafkaException as failure:
        found: int = failure.args[0].code()
        return found
    return 0


def codes(futures: "dict[Any, Future[Any]]") -> dict[Any, int]:
    return {key: code(future) for key, future in futures.items()}


def make(admin: AdminClient, name: str, partitions: int = 1) -> str:
    assert codes(admin.create_topics([NewTopic(name, partitions, 1)])) == {name: 0}
    return name


def resource(kind: ResourceType, name: str, *changes: tuple[str, Any, str]) -> ConfigResource:
    entries = [
        ConfigEntry(key, value, incremental_operation=operation)
        for key, operation, value in changes
    ]
    return ConfigResource(kind, name, incremental_configs=entries)


def configs(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    found: dict[str, ConfigEntry] = future.result(WAIT_S)
    return found


@pytest.mark.parametrize("validate_only", [False, True])
def test_create_topics(admin: AdminClient, validate_only: bool) -> None:
    wanted, expected = [], {}
    for number in range(7):
        name = f"create-{validate_only}-{number}"
        count = number * 7 + 1 if number < 6 else -1
        chosen = {"compression.type": "lz4", "delete.retention.ms": "900"} if number % 2 else {}
        if number == 1:
            chosen["dummy.doesntexist"] = "the broker looks at this"
        expected[name] = KafkaError.INVALID_CONFIG if number == 1 else 0
        if number % 3 or number == 6:
            wanted.append(NewTopic(name, count, 1, config=chosen))
        else:
            wanted.append(NewTopic(name, count, replica_assignment=[[1]] * count, config=chosen))
    assert codes(admin.create_topics(wanted, validate_only=validate_only)) == expected
    shown = admin.list_topics(timeout=WAIT_S).topics
    made = {name for name, failed in expected.items() if not failed and not validate_only}
    assert {name for name in expected if name in shown} == made


def test_delete_topics(admin: AdminClient) -> None:
    names = [make(admin, f"delete-{number}") for number in range(3)]
    found = codes(admin.delete_topics([*names, "delete-nosuch"]))
    assert found == {**dict.fromkeys(names, 0), "delete-nosuch": UNKNOWN_TOPIC}
    assert not set(names) & set(admin.list_topics(timeout=WAIT_S).topics)


def test_create_partitions(admin: AdminClient) -> None:
    grown = []
    for number in range(9):
        name, start, added = f"grow-{number}", 1 + number * 2, 1 + number // 2
        make(admin, name, start)
        grown.append(NewPartitions(name, start + added))
    assert set(codes(admin.create_partitions(grown)).values()) == {0}
    for asked in grown:
        (shown,) = admin.list_topics(asked.topic, timeout=WAIT_S).topics.values()
        assert len(shown.partitions) == asked.new_total_count
        assert all(partition.replicas == [1] for partition in shown.partitions.values())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_alter_configs_of_a_topic_a_broker_and_a_topic_that_is_not_there(
    admin: AdminClient,
) -> None:
    name = make(admin, "alter")
    resources = [
        ConfigResource(TOPIC, name, {"compression.type": "gzip", "flush.ms": "12345678"}),
        ConfigResource(BROKER, "1", {"sasl.kerberos.min.time.before.relogin": "58000"}),
        ConfigResource(
            TOPIC, "alter-nosuch", {"compression.type": "lz4", "max.compaction.lag.ms": "3600000"}
        ),
    ]
    found = [code(future) for future in admin.alter_configs(resources).values()]
    assert found == [0, 0, UNKNOWN_TOPIC]
    assert configs(admin, TOPIC, name)["compression.type"].value == "gzip"
    entry = configs(admin, BROKER, "1")["sasl.kerberos.min.time.before.relogin"]
    assert (entry.value, entry.source) == ("58000", ConfigSource.DYNAMIC_BROKER_CONFIG.value)


def test_incremental_alter_configs_of_topics_brokers_and_groups(admin: AdminClient) -> None:
    name = make(admin, "incremental")
    changes = [
        resource(
            TOPIC, name, ("compression.type", SET, "lz4"), ("cleanup.policy", APPEND, "compact")
        ),
        resource(
            BROKER,
            "1",
            ("background.threads", SET, "9"),
            ("log.cleanup.policy", APPEND, "compact"),
        ),
        resource(GROUP, name, ("consumer.session.timeout.ms", SET, "50000")),
        resource(TOPIC, "incremental-nosuch", ("compression.type", SET, "lz4")),
    ]
    found = [code(future) for future in admin.incremental_alter_configs(changes).values()]
    assert found == [0, 0, 0, UNKNOWN_TOPIC]
    assert configs(admin, TOPIC, name)["cleanup.policy"].value == "delete,compact"
    shown = configs(admin, BROKER, "1")
    assert shown["background.threads"].value == "9"
    assert shown["log.cleanup.policy"].value == "delete,compact"
    back = [
        resource(
            TOPIC,
            name,
            ("compression.type", DELETE, "lz4"),
            ("cleanup.policy", SUBTRACT, "compact"),
        ),
        resource(
            BROKER, "1", ("background.threads", DELETE, ""), ("log.cleanup.policy", DELETE, "")
        ),
        resource(GROUP, name, ("consumer.session.timeout.ms", DELETE, "")),
    ]
    assert set(codes(admin.incremental_alter_configs(back)).values()) == {0}
    assert configs(admin, TOPIC, name)["compression.type"].value == "producer"
    assert configs(admin, BROKER, "1")["background.threads"].value == "10"


def test_describe_configs_of_a_topic_a_broker_a_group_and_what_is_not_there(
    admin: AdminClient,
) -> None:
    name = make(admin, "described")
    assert configs(admin, TOPIC, name)
    assert configs(admin, BROKER, "1")
    assert configs(admin, GROUP, "described-nosuch")
    missing = ConfigResource(TOPIC, "described-nosuch")
    assert list(codes(admin.describe_configs([missing])).values()) == [UNKNOWN_TOPIC]


def test_acls_and_users_are_answered_as_by_a_kafka_that_has_none(admin: AdminClient) -> None:
    binding = AclBinding(
        TOPIC,
        "t",
        ResourcePatternType.LITERAL,
        "User:u",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    assert codes(admin.create_acls([binding])) == {binding: KafkaError.SECURITY_DISABLED}
    found = codes(admin.describe_user_scram_credentials(["nobody"]))
    assert found == {"nobody": KafkaError.RESOURCE_NOT_FOUND}


def fill(broker: EmbeddedBroker, topic: str, partitions: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(partitions):
        for number in range(count):
            producer.produce(topic, value=str(number), partition=partition)
    assert producer.flush(WAIT_S) == 0


def test_delete_records(broker: EmbeddedBroker, admin: AdminClient) -> None:
    name = make(admin, "records", 3)
    fill(broker, name, 3, 10)
    asked = [TopicPartition(name, 0, -1), TopicPartition(name, 1, 5), TopicPartition(name, 2, 11)]
    futures = admin.delete_records(asked)
    low = [futures[partition].result(WAIT_S).low_watermark for partition in asked[:2]]
    assert low == [10, 5]
    assert code(futures[asked[2]]) == KafkaError.OFFSET_OUT_OF_RANGE
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "records"})
    marks = [reader.get_watermark_offsets(partition, WAIT_S) for partition in asked]
    reader.close()
    assert marks == [(10, 10), (5, 10), (0, 10)]


def test_list_offsets(broker: EmbeddedBroker, admin: AdminClient) -> None:
    name, base_ms = make(admin, "listed"), 1_700_000_000_000
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, after_ms in enumerate((100, 400, 250)):
        producer.produce(name, value=str(number), partition=0, timestamp=base_ms + after_ms)
        assert producer.flush(WAIT_S) == 0
    for spec, expected in (
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 3),
        (OffsetSpec.max_timestamp(), 1),
        (OffsetSpec.for_timestamp(base_ms + 50), 0),
        (OffsetSpec.for_timestamp(base_ms + 300), 1),
        (OffsetSpec.for_timestamp(base_ms + 150), 1),
    ):
        (future,) = admin.list_offsets({TopicPartition(name, 0): spec}).values()
        assert future.result(WAIT_S).offset == expected


def commit(broker: EmbeddedBroker, group: str, topic: str, partitions: int) -> None:
    """Offsets 10, 20, … of a group that nobody is in."""
    offsets = [TopicPartition(topic, index, (index + 1) * 10) for index in range(partitions)]
    member = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    member.commit(offsets=offsets, asynchronous=False)
    member.close()


def committed(admin: AdminClient, group: str) -> dict[int, int]:
    asked = ConsumerGroupTopicPartitions(group)
    (future,) = admin.list_consumer_group_offsets([asked]).values()
    found = future.result(WAIT_S).topic_partitions
    return {partition.partition: partition.offset for partition in found}


def test_groups_are_listed_described_and_deleted(
    broker: EmbeddedBroker, admin: AdminClient
) -> None:
    name = make(admin, "grouped")
    groups = [f"grouped-{number}" for number in range(3)]
    for group in groups:
        commit(broker, group, name, 1)
    listed = admin.list_consumer_groups().result(WAIT_S)
    assert not listed.errors
    assert set(groups) <= {group.group_id for group in listed.valid}
    described = admin.describe_consumer_groups(groups)
    states = {described[group].result(WAIT_S).state.name for group in groups}
    assert states == {"EMPTY"}
    found = codes(admin.delete_consumer_groups([*groups, "grouped-nosuch"]))
    nosuch = {"grouped-nosuch": KafkaError.GROUP_ID_NOT_FOUND}
    assert found == {**dict.fromkeys(groups, 0), **nosuch}


def test_offsets_of_a_group_are_listed_altered_and_refused_for_unknown_topics(
    broker: EmbeddedBroker, admin: AdminClient
) -> None:
    name = make(admin, "offsets", 3)
    commit(broker, "offsets", name, 3)
    assert committed(admin, "offsets") == {0: 10, 1: 20, 2: 30}
    change = [ConsumerGroupTopicPartitions("offsets", [TopicPartition(name, 1, 7)])]
    assert set(codes(admin.alter_consumer_group_offsets(change)).values()) == {0}
    assert committed(admin, "offsets") == {0: 10, 1: 7, 2: 30}
    unknown = [ConsumerGroupTopicPartitions("offsets", [TopicPartition("offsets-nosuch", 0, 7)])]
    (future,) = admin.alter_consumer_group_offsets(unknown).values()
    (refused,) = future.result(WAIT_S).topic_partitions
    assert refused.error.code() == UNKNOWN_TOPIC


def test_topics_and_the_cluster_are_described_with_what_everybody_may_do(
    admin: AdminClient,
) -> None:
    name = make(admin, "operations")
    asked = TopicCollection([name, "operations-nosuch"])
    futures = admin.describe_topics(asked, include_authorized_operations=True)
    topic = futures[name].result(WAIT_S)
    assert [partition.id for partition in topic.partitions] == [0]
    assert {operation.name for operation in topic.authorized_operations} == {
        "ALTER",
        "ALTER_CONFIGS",
        "CREATE",
        "DELETE",
        "DESCRIBE",
        "DESCRIBE_CONFIGS",
        "READ",
        "WRITE",
    }
    assert code(futures["operations-nosuch"]) == UNKNOWN_TOPIC
    cluster = admin.describe_cluster(include_authorized_operations=True).result(WAIT_S)
    assert cluster.cluster_id
    assert [node.id for node in cluster.nodes] == [1]
    assert {operation.name for operation in cluster.authorized_operations} == {
        "ALTER",
        "ALTER_CONFIGS",
        "CLUSTER_ACTION",
        "CREATE",
        "DESCRIBE",
        "DESCRIBE_CONFIGS",
        "IDEMPOTENT_WRITE",
    }


def test_leaders_need_no_election(admin: AdminClient) -> None:
    name = make(admin, "elected")
    asked = [TopicPartition(name, 0), TopicPartition(name, 9)]
    found = admin.elect_leaders(ElectionType.PREFERRED, asked).result(WAIT_S)
    assert {partition.partition: error.code() for partition, error in found.items()} == {
        0: KafkaError.ELECTION_NOT_NEEDED,
        9: UNKNOWN_TOPIC,
    }
