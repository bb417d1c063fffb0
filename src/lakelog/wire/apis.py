"""The APIs that this codec speaks, and which header each of their versions has.

`versions` is what can be read and written; what a broker advertises is the broker's decision,
except that Produce is advertised from 0 (`ADVERTISED_FROM`): librdkafka looks at the minimum, and
versions 0 to 2 are refused when they come.
"""

from enum import IntEnum

from msgspec import Struct

from lakelog.wire.layout import message_versions
from lakelog.wire.messages import (
    alter_configs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
)


class ApiKey(IntEnum):
    """The number of an API on the wire."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


class Api(Struct, frozen=True):
    """One API: its two messages, the versions it can be spoken in, and where they turn flexible."""

    key: ApiKey
    name: str
    request: type[Struct]
    response: type[Struct]
    versions: range
    flexible_from: int


MESSAGES: dict[ApiKey, tuple[type[Struct], type[Struct]]] = {
    ApiKey.PRODUCE: (produce.ProduceRequest, produce.ProduceResponse),
    ApiKey.FETCH: (fetch.FetchRequest, fetch.FetchResponse),
    ApiKey.LIST_OFFSETS: (list_offsets.ListOffsetsRequest, list_offsets.ListOffsetsResponse),
    ApiKey.METADATA: (metadata.MetadataRequest, metadata.MetadataResponse),
    ApiKey.OFFSET_COMMIT: (offset_commit.OffsetCommitRequest, offset_commit.OffsetCommitResponse),
    ApiKey.OFFSET_FETCH: (offset_fetch.OffsetFetchRequest, offset_fetch.OffsetFetchResponse),
    ApiKey.FIND_COORDINATOR: (
        find_coordinator.FindCoordinatorRequest,
        find_coordinator.FindCoordinatorResponse,
    ),
    ApiKey.JOIN_GROUP: (join_group.JoinGroupRequest, join_group.JoinGroupResponse),
    ApiKey.HEARTBEAT: (heartbeat.HeartbeatRequest, heartbeat.HeartbeatResponse),
    ApiKey.LEAVE_GROUP: (leave_group.LeaveGroupRequest, leave_group.LeaveGroupResponse),
    ApiKey.SYNC_GROUP: (sync_group.SyncGroupRequest, sync_group.SyncGroupResponse),
    ApiKey.DESCRIBE_GROUPS: (
        describe_groups.DescribeGroupsRequest,
        describe_groups.DescribeGroupsResponse,
    ),
    ApiKey.LIST_GROUPS: (list_groups.ListGroupsRequest, list_groups.ListGroupsResponse),
    ApiKey.SASL_HANDSHAKE: (
        sasl_handshake.SaslHandshakeRequest,
        sasl_handshake.SaslHandshakeResponse,
    ),
    ApiKey.API_VERSIONS: (api_versions.ApiVersionsRequest, api_versions.ApiVersionsResponse),
    ApiKey.CREATE_TOPICS: (create_topics.CreateTopicsRequest, create_topics.CreateTopicsResponse),
    ApiKey.DELETE_TOPICS: (delete_topics.DeleteTopicsRequest, delete_topics.DeleteTopicsResponse),
    ApiKey.DELETE_RECORDS: (
        delete_records.DeleteRecordsRequest,
        delete_records.DeleteRecordsResponse,
    ),
    ApiKey.INIT_PRODUCER_ID: (
        init_producer_id.InitProducerIdRequest,
        init_producer_id.InitProducerIdResponse,
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        offset_for_leader_epoch.OffsetForLeaderEpochRequest,
        offset_for_leader_epoch.OffsetForLeaderEpochResponse,
    ),
    ApiKey.DESCRIBE_CONFIGS: (
        describe_configs.DescribeConfigsRequest,
        describe_configs.DescribeConfigsResponse,
    ),
    ApiKey.ALTER_CONFIGS: (alter_configs.AlterConfigsRequest, alter_configs.AlterConfigsResponse),
    ApiKey.DESCRIBE_LOG_DIRS: (
        describe_log_dirs.DescribeLogDirsRequest,
        describe_log_dirs.DescribeLogDirsResponse,
    ),
    ApiKey.SASL_AUTHENTICATE: (
        sasl_authenticate.SaslAuthenticateRequest,
        sasl_authenticate.SaslAuthenticateResponse,
    ),
    ApiKey.CREATE_PARTITIONS: (
        create_partitions.CreatePartitionsRequest,
        create_partitions.CreatePartitionsResponse,
    ),
    ApiKey.DELETE_GROUPS: (delete_groups.DeleteGroupsRequest, delete_groups.DeleteGroupsResponse),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        incremental_alter_configs.IncrementalAlterConfigsRequest,
        incremental_alter_configs.IncrementalAlterConfigsResponse,
    ),
    ApiKey.OFFSET_DELETE: (offset_delete.OffsetDeleteRequest, offset_delete.OffsetDeleteResponse),
    ApiKey.DESCRIBE_CLUSTER: (
        describe_cluster.DescribeClusterRequest,
        describe_cluster.DescribeClusterResponse,
    ),
    ApiKey.DESCRIBE_PRODUCERS: (
        describe_producers.DescribeProducersRequest,
        describe_producers.DescribeProducersResponse,
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        consumer_group_heartbeat.ConsumerGroupHeartbeatRequest,
        consumer_group_heartbeat.ConsumerGroupHeartbeatResponse,
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        consumer_group_describe.ConsumerGroupDescribeRequest,
        consumer_group_describe.ConsumerGroupDescribeResponse,
    ),
    ApiKey.LIST_CONFIG_RESOURCES: (
        list_config_resources.ListConfigResourcesRequest,
        list_config_resources.ListConfigResourcesResponse,
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        describe_topic_partitions.DescribeTopicPartitionsRequest,
        describe_topic_partitions.DescribeTopicPartitionsResponse,
    ),
}

ADVERTISED_FROM = {ApiKey.PRODUCE: 0}
"""The least version to advertise where it is not the least version we speak."""


def _api(key: ApiKey) -> Api:
    request, response = MESSAGES[key]
    versions = message_versions(request)
    assert versions == message_versions(response), key
    return Api(
        key,
        request.__name__.removesuffix("Request"),
        request,
        response,
        range(versions.first, versions.end),
        versions.flexible_from,
    )


APIS: dict[int, Api] = {int(key): _api(key) for key in ApiKey}
"""Every API by its number."""


def request_header_version(api: Api, version: int) -> int:
    """2 where the version is flexible, else 1; unknown newer versions count as flexible."""
    return 2 if version >= api.flexible_from else 1


def response_header_version(api: Api, version: int) -> int:
    """1 where the version is flexible, else 0.

    ApiVersions always answers with 0: its client does not know yet what we speak.
    """
    return 1 if version >= api.flexible_from and api.key is not ApiKey.API_VERSIONS else 0
