import pytest

from lakelog.groups.state import GroupSettings
from lakelog.topics.broker_configs import (
    DEFINITIONS,
    READ_ONLY,
    check_for_all,
    checked,
    group_defaults,
    readable,
    static_configs,
    topic_layers,
)
from lakelog.topics.config_values import ConfigSource, show
from lakelog.topics.failures import InvalidChange, InvalidConfig
from lakelog.topics.settings import ConfigLayer, merged

USUAL = GroupSettings(
    session_timeout_ms=45_000, heartbeat_interval_ms=5_000, assignment_interval_ms=1_000
)


def test_every_default_is_a_value_that_may_be_set() -> None:
    defaults = {
        definition.name: show(definition.default)
        for definition in DEFINITIONS.values()
        if definition.broker_default and definition.default is not None
    }
    assert checked(defaults, below={}) == defaults
    assert len(defaults) > len(DEFINITIONS) / 2


def test_what_can_be_altered_is_not_what_a_broker_only_shows() -> None:
    assert not set(DEFINITIONS) & set(READ_ONLY)
    assert {"background.threads", "log.retention.ms", "message.max.bytes"} <= set(DEFINITIONS)


def test_values_are_kept_in_their_canonical_form() -> None:
    found = checked({"log.retention.ms": " +5", "log.preallocate": "TRUE"}, below={})
    assert found == {"log.retention.ms": "5", "log.preallocate": "true"}


@pytest.mark.parametrize(
    ("configs", "failure", "words"),
    [
        ({"num.partitions": "3"}, InvalidChange, r"num\.partitions \(set topics\.num_partitions"),
        ({"fetch.max.bytes": "3"}, InvalidChange, r"fetch\.max\.bytes \(fixed\)"),
        ({"ssl.keystore.location": "x"}, InvalidConfig, "configuration file"),
        ({"log.retention.ms": "-2"}, InvalidConfig, r"for configuration log\.retention\.ms"),
        ({"background.threads": "0"}, InvalidConfig, "must be at least 1"),
        ({"log.cleaner.max.compaction.lag.ms": "4"}, InvalidConfig, r"lag\.ms \(5\) >"),
    ],
)
def test_what_is_refused_says_why_and_where_to_go(
    configs: dict[str, str], failure: type[Exception], words: str
) -> None:
    with pytest.raises(failure, match=words):
        checked(configs, below={"log.cleaner.min.compaction.lag.ms": "5"})


def test_some_configs_are_for_a_single_broker_only() -> None:
    check_for_all({"log.retention.ms": "5"})
    with pytest.raises(InvalidChange, match="broker id must be specified"):
        check_for_all({"sasl.kerberos.min.time.before.relogin": "58000"})


def test_what_a_newer_version_stored_means_nothing_here() -> None:
    assert readable({"newer": "1", "log.retention.ms": "x", "num.io.threads": "9"}) == {
        "num.io.threads": "9"
    }


def test_topics_and_groups_get_what_is_theirs_by_their_own_names() -> None:
    own = ConfigLayer(ConfigSource.BROKER, {"message.max.bytes": "7"})
    for_all = ConfigLayer(
        ConfigSource.DEFAULT_BROKER,
        {
            "message.max.bytes": "8",
            "background.threads": "2",
            "group.consumer.assignment.interval.ms": "9",
        },
    )
    of_topics = topic_layers((own, for_all))
    assert [layer.configs for layer in of_topics] == [
        {"max.message.bytes": "7"},
        {"max.message.bytes": "8"},
    ]
    assert merged(of_topics) == {"max.message.bytes": "7"}
    assert group_defaults((own, for_all), USUAL).assignment_interval_ms == 9
    assert group_defaults((own,), USUAL) is USUAL


def test_what_the_options_set_is_static() -> None:
    assert static_configs({"retention.ms": "5", "lakelog.format": "kfs"}, USUAL) == {
        "log.retention.ms": "5"
    }
