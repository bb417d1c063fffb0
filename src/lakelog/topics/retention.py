"""What each stream keeps, as retention asks for it: by the topics' configs, read right now (T6)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakelog.log.retention import Policy

if TYPE_CHECKING:
    from lakelog.topics.broker_configs import BrokerConfigs
    from lakelog.topics.registry import Topics


async def policies(topics: "Topics", configs: "BrokerConfigs") -> Mapping[int, Policy]:
    """The policy of every stream whose topic drops old records; others are left out."""
    await configs.current()  # what topics get that do not say how long they keep records
    found: dict[int, Policy] = {}
    for topic in await topics.all():
        kept = topic.settings
        if kept.delete and (kept.retention_ms >= 0 or kept.retention_bytes >= 0):
            policy = Policy(kept.retention_ms, max(kept.retention_bytes, -1))
            found.update(dict.fromkeys(topic.streams(), policy))
    return found
