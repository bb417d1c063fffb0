"""What is wrong with a request by itself, and the events that good ones become."""

from typing import Any
from uuid import UUID

import pytest
from tests.coordinator.coordinator_cluster import TOPIC, beat_ask, join_ask

from lakelog.coordinator.options import GroupOptions
from lakelog.coordinator.requests import (
    beat_event,
    check_beat,
    check_join,
    join_event,
    minted_classic,
    minted_consumer,
    needs_id_first,
)
from lakelog.groups.state import GroupSettings
from lakelog.model.errors import ErrorCode

OPTIONS = GroupOptions()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, ErrorCode.NONE),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 6_000}, ErrorCode.NONE),
        ({"session_timeout_ms": 1_800_000}, ErrorCode.NONE),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"group_id": "", "session_timeout_ms": 1}, ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_a_join_is_checked_as_kafka_does(changes: dict[str, Any], code: ErrorCode) -> None:
    assert check_join(join_ask(**changes), OPTIONS) is code


@pytest.mark.parametrize(
    ("changes", "needs"),
    [
        ({}, True),
        ({"api_version": 4}, True),
        ({"api_version": 3}, False),
        ({"instance_id": "i"}, False),
        ({"member_id": "m"}, False),
    ],
)
def test_new_dynamic_members_get_an_id_first(changes: dict[str, Any], needs: bool) -> None:
    assert needs_id_first(join_ask(**{"member_id": "", **changes})) is needs


def test_version_0_has_one_timeout_for_both() -> None:
    asked = join_ask(rebalance_timeout_ms=-1, api_version=0)
    event = join_event(asked, member_id="m", is_new=True, holder=1, options=OPTIONS)
    assert event.rebalance_timeout_ms == asked.session_timeout_ms


def test_ids_are_made_of_the_client_or_instance_and_chance() -> None:
    token = bytes(range(16))
    dynamic = minted_classic(token, join_ask(client_id="c-1"))
    static = minted_classic(token, join_ask(instance_id="i-1"))
    assert dynamic.startswith("c-1-")
    assert static.startswith("i-1-")
    assert UUID(dynamic.removeprefix("c-1-")).version == 4
    assert len(minted_consumer(token)) == 22


BAD_BEATS: list[tuple[dict[str, Any], ErrorCode]] = [
    ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
    ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
    ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
    ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
    ({"member_id": "", "member_epoch": 1, "api_version": 0}, ErrorCode.INVALID_REQUEST),
    ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
    ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
    ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
    ({"owned": None}, ErrorCode.INVALID_REQUEST),
    ({"owned": ((TOPIC, (0,)),)}, ErrorCode.INVALID_REQUEST),
    ({"names": None}, ErrorCode.INVALID_REQUEST),
    ({"assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
    ({"pattern": "a("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
]


@pytest.mark.parametrize(("changes", "code"), BAD_BEATS)
def test_a_bad_heartbeat_hears_what_is_wrong(changes: dict[str, Any], code: ErrorCode) -> None:
    refused = check_beat(beat_ask(**changes), OPTIONS)
    assert refused is not None
    assert refused.code is code
    assert refused.reason


GOOD_BEATS: list[dict[str, Any]] = [
    {},
    {"member_id": "", "api_version": 0},
    {"names": ()},
    {"names": None, "pattern": "t.*"},
    {"pattern": ""},
    {"assignor": "range"},
    {"member_epoch": -2, "instance_id": "i"},
    {"member_epoch": -1},
    {"member_epoch": 5, "rebalance_timeout_ms": -1, "names": None, "owned": None},
]


@pytest.mark.parametrize("changes", GOOD_BEATS)
def test_a_good_heartbeat_passes(changes: dict[str, Any]) -> None:
    assert check_beat(beat_ask(**changes), OPTIONS) is None


def test_an_event_has_names_and_partitions_in_their_one_order() -> None:
    high, low = b"\2" * 16, b"\1" * 16
    asked = beat_ask(names=("b", "a", "b"), owned=((high, (3, 1)), (low, (0,)), (high, (2, 1))))
    settings = GroupSettings(
        session_timeout_ms=50_000, heartbeat_interval_ms=6_000, assignment_interval_ms=0
    )
    event = beat_event(asked, member_id="m", holder=4, members_max=9, settings=settings)
    assert event.names == ("a", "b")
    assert event.owned == ((low, (0,)), (high, (1, 2, 3)))
    assert (event.holder, event.session_timeout_ms, event.members_max) == (4, 50_000, 9)
