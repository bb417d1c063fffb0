"""The APIs that this codec speaks, and which header each of their versions has.

`versions` is what can be read and written; what a broker advertises is the broker's decision,
except that Produce is advertised from 0 (`ADVERTISED_FROM`): librdkafka looks at the minimum, and
versions 0 to 2 are refused when they come.
"""

from enum import IntEnum
from importlib import import_module

from msgspec import Struct

from lakelog.wire.layout import message_versions


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


ADVERTISED_FROM = {ApiKey.PRODUCE: 0}
"""The least version to advertise where it is not the least version we speak."""


def _api(key: ApiKey) -> Api:
    """The API whose messages are in the module that has the name of its key."""
    module = import_module(f"lakelog.wire.messages.{key.name.lower()}")
    name = "".join(word.capitalize() for word in key.name.split("_"))
    request: type[Struct] = getattr(module, f"{name}Request")
    response: type[Struct] = getattr(module, f"{name}Response")
    versions = message_versions(request)
    assert versions == message_versions(response), key
    return Api(
        key, name, request, response, range(versions.first, versions.end), versions.flexible_from
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
