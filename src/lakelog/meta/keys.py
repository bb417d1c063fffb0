"""Names of the keys and logs, in one place. Pure.

Topic names obey `[a-zA-Z0-9._-]` before they come here, so a name is a key segment as it is. The id
of a group may be anything of any length, so its key has the hash of it, and the value the id. The
names of a table and its namespace are percent-encoded, and the value has them as they are.
"""

from hashlib import blake2b
from typing import Final
from urllib.parse import quote

ROOT: Final = "/lakelog/v1"
CLUSTER: Final = f"{ROOT}/cluster"
TOPICS: Final = f"{ROOT}/topics/"
TOPICS_REVISION: Final = f"{ROOT}/topics-revision"
BROKER_CONFIGS: Final = f"{ROOT}/broker-configs"
GROUP_CONFIGS: Final = f"{ROOT}/group-configs/"
GROUP_CONFIGS_REVISION: Final = f"{ROOT}/group-configs-revision"
BROKERS: Final = f"{ROOT}/brokers/"
DOMAINS: Final = f"{ROOT}/domains/"
TABLES: Final = f"{ROOT}/tables/"
SNAPSHOTS: Final = f"{ROOT}/snapshots/"
SNAPSHOT_PAGES: Final = f"{ROOT}/snapshot-pages/"
PIPELINE_TOKEN: Final = f"{ROOT}/pipeline-token"
NEXT_STREAM: Final = f"{ROOT}/counters/streams"
NEXT_PRODUCER: Final = f"{ROOT}/counters/producers"

TIMELINE: Final = "/timeline"
"""What the key of a domain's timeline ends with."""

_HASH_BYTES: Final = 20
_PAGE_DIGITS: Final = 10


def topic(name: str) -> str:
    """The key of a topic."""
    return f"{TOPICS}{name}"


def group_configs(group_id: str) -> str:
    """The key of what a group sets itself."""
    return f"{GROUP_CONFIGS}{blake2b(group_id.encode(), digest_size=_HASH_BYTES).hexdigest()}"


def tables(namespace: str) -> str:
    """What the keys of a namespace's tables begin with."""
    return f"{TABLES}{_encoded(namespace)}/"


def table(namespace: str, name: str) -> str:
    """The key of the pointer to a table's newest metadata."""
    return f"{tables(namespace)}{_encoded(name)}"


def snapshots(topic_id: str) -> str:
    """The key that says that there is a history of snapshots of the topic with this id."""
    return f"{SNAPSHOTS}{topic_id}"


def snapshot_pages(topic_id: str) -> str:
    """What the keys of that history begin with."""
    return f"{SNAPSHOT_PAGES}{topic_id}/"


def snapshot_head(topic_id: str) -> str:
    """The key of the newest part of that history."""
    return f"{snapshot_pages(topic_id)}head"


def snapshot_page(topic_id: str, number: int) -> str:
    """The key of a sealed page of that history."""
    return f"{snapshot_pages(topic_id)}{number:0{_PAGE_DIGITS}d}"


def _encoded(name: str) -> str:
    # No two names meet in one key, also when somebody asks for what is no text at all.
    return quote(name, safe="", errors="surrogatepass")


def broker(broker_id: int) -> str:
    """The key by which a running broker is known; it lives as long as the broker's session."""
    return f"{BROKERS}{broker_id}"


def incarnation(writer: str) -> str:
    """The key of the number that a writer counts up each time it begins anew."""
    return f"{ROOT}/writers/{writer}"


def domain_log(domain: int) -> str:
    """The log of a domain."""
    return f"{DOMAINS}{domain}/log"


def checkpoint(domain: int) -> str:
    """The pointer to the newest checkpoint of a domain."""
    return f"{DOMAINS}{domain}/checkpoint"


def timeline(domain: int) -> str:
    """The key that says which history of a domain this is; absent before a loss was accepted."""
    return f"{DOMAINS}{domain}{TIMELINE}"
