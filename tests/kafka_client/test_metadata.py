"""What a Metadata answer becomes."""

from lakelog.kafka_client.metadata import (
    PartitionMetadata,
    TopicMetadata,
    metadata_request,
    parse_metadata,
)
from lakelog.kafka_client.setting_keys import BrokerAddress
from lakelog.model.errors import ErrorCode
from lakelog.wire.messages.metadata import (
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ID = bytes(range(16))


def test_partitions_stand_in_order_each_once_and_keep_their_errors() -> None:
    answer = MetadataResponse(
        topics=(
            MetadataResponseTopic(
                name="orders",
                topic_id=ID,
                partitions=(
                    MetadataResponsePartition(0, 1, 7, 3),
                    MetadataResponsePartition(ErrorCode.LEADER_NOT_AVAILABLE, 0, -1, 2),
                    MetadataResponsePartition(0, 1, 8, 4),
                    MetadataResponsePartition(0, -5, 8, 4),
                ),
            ),
            MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "none"),
            MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, ID),
        )
    )
    topics = parse_metadata(answer).topics
    assert topics == {
        "orders": TopicMetadata(
            "orders",
            ID,
            (
                PartitionMetadata(0, -1, 2, ErrorCode.LEADER_NOT_AVAILABLE),
                PartitionMetadata(1, 8, 4),
            ),
        ),
        "none": TopicMetadata("none", bytes(16), (), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    }
    assert topics["orders"].has_id
    assert not topics["none"].has_id
    assert [view.has_leader for view in topics["orders"].partitions] == [False, True]


def test_a_broker_without_a_usable_address_is_left_out() -> None:
    brokers = (
        MetadataResponseBroker(1, "a", 9092),
        MetadataResponseBroker(2, "", 9092),
        MetadataResponseBroker(3, "b", 0),
        MetadataResponseBroker(4, "b", -1),
        MetadataResponseBroker(5, "b", 70_000),
    )
    assert parse_metadata(MetadataResponse(brokers=brokers)).brokers == {
        1: BrokerAddress("a", 9092)
    }


def test_none_asks_for_all_topics_and_nothing_for_none() -> None:
    assert metadata_request(None, may_create=False).topics is None
    assert metadata_request((), may_create=False).topics == ()
    asked = metadata_request(["a"], may_create=True)
    assert asked.topics == (MetadataRequestTopic(name="a"),)
    assert asked.allow_auto_topic_creation
