"""The table of the APIs that this broker serves, and the way from a request to its handler.

ApiVersions is derived from the table; what is not in it is not advertised. A key that is not in the
table (transactions, what brokers say to each other) and a version that we
do not speak close the connection, as Kafka does, because no answer could be understood; ApiVersions
alone answers in a version that everybody knows (row 25).
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lakelog.broker import (
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
    sync_group,
    unregister_broker,
    update_features,
)
from lakelog.broker.call import Answer, Call, CloseConnection, Later
from lakelog.broker.loop_turn import SLOW_BYTES_MIN, on_thread
from lakelog.wire.apis import APIS, ApiKey
from lakelog.wire.codec import decode
from lakelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from lakelog.broker.broker import Broker, BrokerOptions

Handler: TypeAlias = Callable[..., Coroutine[Any, Any, Answer | Later]]
"""`handle(broker, call, request)`; each takes the request of its own API."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One API: who answers it, and whether clients are told of it."""

    handler: Handler
    offered: Callable[["BrokerOptions"], bool] = lambda _options: True


async def _api_versions(
    broker: "Broker", call: Call, request: ApiVersionsRequest
) -> ApiVersionsResponse:
    return api_versions.answer(call.version, request, advertised(broker.options))


ENDPOINTS: Final[dict[ApiKey, Endpoint]] = {
    ApiKey.PRODUCE: Endpoint(produce.handle),
    ApiKey.FETCH: Endpoint(fetch.handle),
    ApiKey.LIST_OFFSETS: Endpoint(list_offsets.handle),
    ApiKey.METADATA: Endpoint(metadata.handle),
    ApiKey.OFFSET_COMMIT: Endpoint(offset_commit.handle),
    ApiKey.OFFSET_FETCH: Endpoint(offset_fetch.handle),
    ApiKey.FIND_COORDINATOR: Endpoint(find_coordinator.handle),
    ApiKey.JOIN_GROUP: Endpoint(join_group.handle),
    ApiKey.HEARTBEAT: Endpoint(heartbeat.handle),
    ApiKey.LEAVE_GROUP: Endpoint(leave_group.handle),
    ApiKey.SYNC_GROUP: Endpoint(sync_group.handle),
    ApiKey.DESCRIBE_GROUPS: Endpoint(describe_groups.handle),
    ApiKey.LIST_GROUPS: Endpoint(list_groups.handle),
    ApiKey.API_VERSIONS: Endpoint(_api_versions),
    ApiKey.CREATE_TOPICS: Endpoint(create_topics.handle),
    ApiKey.DELETE_TOPICS: Endpoint(delete_topics.handle),
    ApiKey.DELETE_RECORDS: Endpoint(delete_records.handle),
    ApiKey.INIT_PRODUCER_ID: Endpoint(
        init_producer_id.handle, offered=lambda options: options.idempotence
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Endpoint(offset_for_leader_epoch.handle),
    ApiKey.DESCRIBE_ACLS: Endpoint(describe_acls.handle),
    ApiKey.CREATE_ACLS: Endpoint(create_acls.handle),
    ApiKey.DELETE_ACLS: Endpoint(delete_acls.handle),
    ApiKey.DESCRIBE_CONFIGS: Endpoint(describe_configs.handle),
    ApiKey.ALTER_CONFIGS: Endpoint(alter_configs.handle),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Endpoint(alter_replica_log_dirs.handle),
    ApiKey.DESCRIBE_LOG_DIRS: Endpoint(describe_log_dirs.handle),
    ApiKey.CREATE_PARTITIONS: Endpoint(create_partitions.handle),
    ApiKey.DELETE_GROUPS: Endpoint(delete_groups.handle),
    ApiKey.ELECT_LEADERS: Endpoint(elect_leaders.handle),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Endpoint(incremental_alter_configs.handle),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Endpoint(alter_partition_reassignments.handle),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Endpoint(list_partition_reassignments.handle),
    ApiKey.OFFSET_DELETE: Endpoint(offset_delete.handle),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Endpoint(describe_client_quotas.handle),
    ApiKey.ALTER_CLIENT_QUOTAS: Endpoint(alter_client_quotas.handle),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Endpoint(describe_user_scram_credentials.handle),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Endpoint(alter_user_scram_credentials.handle),
    ApiKey.DESCRIBE_QUORUM: Endpoint(describe_quorum.handle),
    ApiKey.UPDATE_FEATURES: Endpoint(update_features.handle),
    ApiKey.DESCRIBE_CLUSTER: Endpoint(describe_cluster.handle),
    ApiKey.DESCRIBE_PRODUCERS: Endpoint(describe_producers.handle),
    ApiKey.UNREGISTER_BROKER: Endpoint(unregister_broker.handle),
    ApiKey.DESCRIBE_TRANSACTIONS: Endpoint(describe_transactions.handle),
    ApiKey.LIST_TRANSACTIONS: Endpoint(list_transactions.handle),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Endpoint(consumer_group_heartbeat.handle),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Endpoint(consumer_group_describe.handle),
    ApiKey.LIST_CONFIG_RESOURCES: Endpoint(list_config_resources.handle),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Endpoint(describe_topic_partitions.handle),
}


def advertised(options: "BrokerOptions") -> list[ApiKey]:
    """The APIs that clients are told of, by key."""
    return sorted(key for key, endpoint in ENDPOINTS.items() if endpoint.offered(options))


async def dispatch(broker: "Broker", key: int, call: Call, body: memoryview) -> Answer | Later:
    """Decode a request and hand it to its handler.

    Raises `CloseConnection`, or `ProtocolError` when the body is not what its version says.
    """
    api = APIS.get(key)
    endpoint = ENDPOINTS.get(api.key) if api is not None else None
    if api is None or endpoint is None:
        raise CloseConnection(f"API {key} is not served")
    if call.version not in api.versions:
        if api.key is ApiKey.API_VERSIONS:
            return api_versions.unsupported()
        raise CloseConnection(f"{api.name} v{call.version} is not served")
    if len(body) >= SLOW_BYTES_MIN and api.key is not ApiKey.PRODUCE:
        request, _ = await on_thread(decode, api.request, call.version, body)
    else:
        request, _ = decode(api.request, call.version, body)
    return await endpoint.handler(broker, call, request)
