"""The APIs that this codec speaks, and which header each of their versions has.

`versions` is what can be read and written; what a broker advertises is the broker's decision,
except that Produce is advertised from 0 (`ADVERTISED_FROM`): librdkafka looks at the minimum, and
versions 0 to 2 are refused when they come.
"""

from enum import IntEnum

from msgspec import Struct

from lakelog.wire.layout import message_versions
from lakelog.wire.messages import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
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
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    unregister_broker,
    update_features,
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
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
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
    ApiKey.DESCRIBE_ACLS: (describe_acls.DescribeAclsRequest, describe_acls.DescribeAclsResponse),
    ApiKey.CREATE_ACLS: (create_acls.CreateAclsRequest, create_acls.CreateAclsResponse),
    ApiKey.DELETE_ACLS: (delete_acls.DeleteAclsRequest, delete_acls.DeleteAclsResponse),
    ApiKey.DESCRIBE_CONFIGS: (
        describe_configs.DescribeConfigsRequest,
        describe_configs.DescribeConfigsResponse,
    ),
    ApiKey.ALTER_CONFIGS: (alter_configs.AlterConfigsRequest, alter_configs.AlterConfigsResponse),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (
        alter_replica_log_dirs.AlterReplicaLogDirsRequest,
        alter_replica_log_dirs.AlterReplicaLogDirsResponse,
    ),
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
    ApiKey.ELECT_LEADERS: (elect_leaders.ElectLeadersRequest, elect_leaders.ElectLeadersResponse),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        incremental_alter_configs.IncrementalAlterConfigsRequest,
        incremental_alter_configs.IncrementalAlterConfigsResponse,
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (
        alter_partition_reassignments.AlterPartitionReassignmentsRequest,
        alter_partition_reassignments.AlterPartitionReassignmentsResponse,
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (
        list_partition_reassignments.ListPartitionReassignmentsRequest,
        list_partition_reassignments.ListPartitionReassignmentsResponse,
    ),
    ApiKey.OFFSET_DELETE: (offset_delete.OffsetDeleteRequest, offset_delete.OffsetDeleteResponse),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (
        describe_client_quotas.DescribeClientQuotasRequest,
        describe_client_quotas.DescribeClientQuotasResponse,
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: (
        alter_client_quotas.AlterClientQuotasRequest,
        alter_client_quotas.AlterClientQuotasResponse,
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (
        describe_user_scram_credentials.DescribeUserScramCredentialsRequest,
        describe_user_scram_credentials.DescribeUserScramCredentialsResponse,
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (
        alter_user_scram_credentials.AlterUserScramCredentialsRequest,
        alter_user_scram_credentials.AlterUserScramCredentialsResponse,
    ),
    ApiKey.DESCRIBE_QUORUM: (
        describe_quorum.DescribeQuorumRequest,
        describe_quorum.DescribeQuorumResponse,
    ),
    ApiKey.UPDATE_FEATURES: (
        update_features.UpdateFeaturesRequest,
        update_features.UpdateFeaturesResponse,
    ),
    ApiKey.DESCRIBE_CLUSTER: (
        describe_cluster.DescribeClusterRequest,
        describe_cluster.DescribeClusterResponse,
    ),
    ApiKey.DESCRIBE_PRODUCERS: (
        describe_producers.DescribeProducersRequest,
        describe_producers.DescribeProducersResponse,
    ),
    ApiKey.UNREGISTER_BROKER: (
        unregister_broker.UnregisterBrokerRequest,
        unregister_broker.UnregisterBrokerResponse,
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        describe_transactions.DescribeTransactionsRequest,
        describe_transactions.DescribeTransactionsResponse,
    ),
    ApiKey.LIST_TRANSACTIONS: (
        list_transactions.ListTransactionsRequest,
        list_transactions.ListTransactionsResponse,
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
