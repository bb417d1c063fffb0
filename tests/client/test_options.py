"""Which topic to read, and from where."""

from dataclasses import FrozenInstanceError
from types import SimpleNamespace

import pytest

from lakelog.client.options import (
    SourceTopic,
    StartPlan,
    check_policies,
    parse_topics,
    start_offset,
)
from lakelog.kafka_client.admin import (
    LogBounds,
    TopicPartition,
)
from lakelog.kafka_client.failures import BadConfig, OffsetGone


def test_the_five_policies_have_their_names() -> None:
    assert SourceTopic.from_earliest("a") == SourceTopic("a", "earliest")
    assert SourceTopic.from_latest("a") == SourceTopic("a", "latest")
    assert SourceTopic.from_committed("a") == SourceTopic("a", "committed")
    assert SourceTopic.from_relative_time("a", 5) == SourceTopic("a", "relative_time", 5)
    assert SourceTopic.from_absolute_time("a", 5) == SourceTopic("a", "absolute_time", 5)


def test_a_topic_is_read_from_its_end_if_nothing_is_said() -> None:
    assert SourceTopic("a").policy == "latest"


def test_a_source_topic_never_changes() -> None:
    with pytest.raises(FrozenInstanceError):
        SourceTopic("a").name = "b"  # type: ignore[misc]  # the point of the test


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "a" * 250, None, 7, b"a"])
def test_a_name_that_no_topic_can_have_is_refused(name: object) -> None:
    with pytest.raises(BadConfig, match="cannot be the name of a topic"):
        SourceTopic(name)  # type: ignore[arg-type]  # the point of the test


def test_an_unknown_policy_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(BadConfig, match="earliest, latest, committed, relative_time"):
        SourceTopic("a", "newest")


@pytest.mark.parametrize("time_ms", [None, -1, 1.5, True, "5"])
def test_a_policy_of_time_needs_milliseconds(time_ms: object) -> None:
    with pytest.raises(BadConfig, match="time_ms"):
        SourceTopic("a", "relative_time", time_ms)  # type: ignore[arg-type]  # as said


def test_a_policy_without_time_takes_none() -> None:
    with pytest.raises(BadConfig, match="takes no time"):
        SourceTopic("a", "earliest", 5)


def test_relative_time_is_counted_back_from_now() -> None:
    assert SourceTopic.from_relative_time("a", 400).start_ms(1000) == 600
    assert SourceTopic.from_relative_time("a", 4000).start_ms(1000) == 0
    assert SourceTopic.from_absolute_time("a", 400).start_ms(1000) == 400
    assert SourceTopic.from_earliest("a").start_ms(1000) is None


def test_mappings_and_look_alikes_are_taken_as_topics() -> None:
    found = parse_topics(
        [
            {"name": "c", "policy": "relative_time", "time_ms": 3},
            SimpleNamespace(name="b", policy="earliest", time_ms=None),
            {"name": "a"},
        ]
    )
    assert found == (
        SourceTopic("a", "latest"),
        SourceTopic("b", "earliest"),
        SourceTopic("c", "relative_time", 3),
    )


def test_a_duplicate_topic_is_refused_by_name() -> None:
    with pytest.raises(BadConfig, match="duplicate topic: 'a'"):
        parse_topics([SourceTopic("a"), SourceTopic("a", "earliest")])


@pytest.mark.parametrize(
    "topics", [[], "a", SourceTopic("a"), {"name": "a"}, ["a"], [5], [{"nam": "a"}], [{}]]
)
def test_what_is_no_list_of_topics_is_refused(topics: list[object]) -> None:
    with pytest.raises(BadConfig, match="topics"):
        parse_topics(topics)


PLACE = TopicPartition("t", 0)
LOG = LogBounds(10, 100)


def begin(policy: str, found: int | None = None, reset: str = "error") -> int:
    return start_offset(StartPlan(PLACE, policy, LOG, found, reset))


def test_earliest_and_latest_are_the_ends_of_the_log() -> None:
    assert begin("earliest") == 10
    assert begin("latest") == 100


def test_a_time_is_where_it_is_found_or_the_end() -> None:
    assert begin("absolute_time", 42) == 42
    assert begin("relative_time", None) == 100
    assert begin("relative_time", 150) == 100, "beyond the last stable offset"


def test_a_commit_is_gone_on_from() -> None:
    assert begin("committed", 42) == 42
    assert begin("committed", 100) == 100


@pytest.mark.parametrize(("reset", "start"), [("error", 10), ("earliest", 10), ("latest", 100)])
def test_without_a_commit_reading_begins_as_told_or_at_the_start(reset: str, start: int) -> None:
    assert begin("committed", None, reset) == start


@pytest.mark.parametrize("found", [5, 101])
def test_a_commit_outside_of_the_log_is_an_error_unless_told_otherwise(found: int) -> None:
    with pytest.raises(OffsetGone, match=rf"no offset {found}: the log holds \[10, 100\)"):
        begin("committed", found)
    assert begin("committed", found, "earliest") == 10
    assert begin("committed", found, "latest") == 100


def test_a_committed_topic_needs_a_group() -> None:
    check_policies([SourceTopic.from_earliest("t")], "")
    with pytest.raises(BadConfig, match=r"group\.id"):
        check_policies([SourceTopic.from_committed("t")], "")
