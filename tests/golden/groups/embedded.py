"""Our broker with the options of a profile, inside this process."""

from typing import Final

import msgspec
from tests.golden.groups.script import PROFILES

from lakelog.coordinator.options import GroupOptions
from lakelog.testing.broker import EmbeddedBroker, EmbeddedOptions

OURS: Final = {
    "group.initial.rebalance.delay.ms": "initial_rebalance_delay_ms",
    "group.min.session.timeout.ms": "session_timeout_min_ms",
    "group.max.size": "members_max",
    "group.consumer.max.size": "consumer_members_max",
    "group.consumer.session.timeout.ms": "consumer_session_timeout_ms",
    "group.consumer.heartbeat.interval.ms": "consumer_heartbeat_interval_ms",
    "group.consumer.assignment.interval.ms": "assignment_interval_ms",
}
"""Our option by Kafka's name; the other names of a profile say what we do anyway."""


def embedded(profile: str) -> EmbeddedBroker:
    """A broker of ours that is set up as the recorded one was; its stores are in memory."""
    chosen = {OURS[name]: int(value) for name, value in PROFILES[profile].items() if name in OURS}
    groups: GroupOptions = msgspec.convert(chosen, GroupOptions)
    return EmbeddedBroker(EmbeddedOptions(groups=groups))
