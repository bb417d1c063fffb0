import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.coordinator.options import GroupOptions, default_settings
from lakelog.groups.state import GroupSettings
from lakelog.topics.failures import InvalidConfig
from lakelog.topics.group_configs import (
    ASSIGNMENT_INTERVAL,
    DEFINITIONS,
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    checked,
    default_values,
    settings,
)

USUAL = default_settings(GroupOptions())
QUICK = GroupSettings(
    session_timeout_ms=10_000, heartbeat_interval_ms=500, assignment_interval_ms=20_000
)


def test_the_defaults_are_those_of_the_options() -> None:
    shown = {name: definition.default for name, definition in DEFINITIONS.items()}
    assert default_values(USUAL) == shown
    assert list(DEFINITIONS) == sorted(DEFINITIONS)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (HEARTBEAT_INTERVAL, "4999"),
        (HEARTBEAT_INTERVAL, "15001"),
        (HEARTBEAT_INTERVAL, "0"),
        (HEARTBEAT_INTERVAL, ""),
        (HEARTBEAT_INTERVAL, "6000.5"),
        (HEARTBEAT_INTERVAL, "1e4"),
        (HEARTBEAT_INTERVAL, "9" * 40),
        (SESSION_TIMEOUT, "44999"),
        (SESSION_TIMEOUT, "60001"),
        (SESSION_TIMEOUT, "-1"),
        (ASSIGNMENT_INTERVAL, "-1"),
        (ASSIGNMENT_INTERVAL, "15001"),
        ("share.session.timeout.ms", "46000"),
        ("retention.ms", "46000"),
        ("Consumer.session.timeout.ms", "50000"),
    ],
)
def test_what_kafka_refuses_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        checked({name: text}, USUAL)


@pytest.mark.parametrize(
    ("name", "text", "canonical"),
    [
        (HEARTBEAT_INTERVAL, " 5000 ", "5000"),
        (HEARTBEAT_INTERVAL, "+15000", "15000"),
        (SESSION_TIMEOUT, "45000", "45000"),
        (SESSION_TIMEOUT, "060000", "60000"),
        (ASSIGNMENT_INTERVAL, "0", "0"),
        (ASSIGNMENT_INTERVAL, "15000", "15000"),
    ],
)
def test_what_kafka_takes_is_taken_in_its_one_form(name: str, text: str, canonical: str) -> None:
    assert checked({name: text}, USUAL) == {name: canonical}


def test_a_group_may_have_what_the_operator_chose_for_all() -> None:
    own = {HEARTBEAT_INTERVAL: "500", SESSION_TIMEOUT: "10000", ASSIGNMENT_INTERVAL: "20000"}
    assert checked(own, QUICK) == own
    assert settings(own, QUICK) == QUICK
    for name, text in (
        (HEARTBEAT_INTERVAL, "499"),
        (SESSION_TIMEOUT, "9999"),
        (ASSIGNMENT_INTERVAL, "20001"),
    ):
        with pytest.raises(InvalidConfig, match=name):
            checked({name: text}, QUICK)


def test_a_session_is_longer_than_the_time_between_two_heartbeats() -> None:
    with pytest.raises(InvalidConfig, match=HEARTBEAT_INTERVAL):
        checked({HEARTBEAT_INTERVAL: "10000"}, QUICK)
    assert checked({HEARTBEAT_INTERVAL: "9999"}, QUICK)


def test_what_a_newer_version_wrote_means_nothing_here() -> None:
    own = {"consumer.assignor.offload.enable": "true", HEARTBEAT_INTERVAL: "6000"}
    assert settings(own, USUAL).heartbeat_interval_ms == 6_000


def test_what_is_out_of_bounds_counts_as_the_nearest_that_is_not() -> None:
    found = settings({SESSION_TIMEOUT: "20000", HEARTBEAT_INTERVAL: "99999"}, USUAL)
    assert found == GroupSettings(
        session_timeout_ms=45_000, heartbeat_interval_ms=15_000, assignment_interval_ms=1_000
    )


@given(st.dictionaries(st.sampled_from(sorted(DEFINITIONS)), st.integers(-9, 99_999).map(str)))
def test_what_is_taken_is_what_is_in_effect(own: dict[str, str]) -> None:
    try:
        taken = checked(own, USUAL)
    except InvalidConfig:
        return
    in_effect = default_values(settings(taken, USUAL))
    assert in_effect == {**default_values(USUAL), **{name: int(own[name]) for name in own}}
    assert checked(taken, USUAL) == taken
