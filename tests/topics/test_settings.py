import pytest

from lakelog.records.acceptance import TimestampType
from lakelog.topics.config_values import ConfigSource
from lakelog.topics.configs import DEFINITIONS, Format
from lakelog.topics.failures import InvalidConfig
from lakelog.topics.settings import (
    ConfigLayer,
    DescribedConfig,
    Synonym,
    TopicDefaults,
    described,
    in_effect,
    settings,
)


def one(name: str, configs: dict[str, str], defaults: dict[str, str]) -> DescribedConfig:
    layers = (ConfigLayer(ConfigSource.STATIC, defaults),)
    (found,) = (d for d in described(configs, layers) if d.definition.name == name)
    return found


def test_settings_of_a_topic_that_sets_nothing_are_kafkas() -> None:
    found = settings({})
    assert found.message_bytes_max == 1_048_588
    assert found.timestamp_type is TimestampType.CREATE_TIME
    assert (found.timestamp_before_max_ms, found.timestamp_after_max_ms) == (2**63 - 1, 3_600_000)
    assert (found.delete, found.compacted) == (True, False)
    assert (found.retention_ms, found.retention_bytes) == (604_800_000, -1)
    assert found.format is Format.PARQUET
    assert (found.table_freshness_ms, found.table_retention_ms) == (60_000, -1)


def test_settings_follow_the_topics_own_configs_before_the_brokers() -> None:
    configs = {
        "cleanup.policy": "compact,delete",
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": "-1",
        "lakelog.format": "kfs",
        "lakelog.table.freshness.ms": "0",
    }
    found = settings(configs, {"retention.ms": "5", "retention.bytes": "7"})
    assert (found.delete, found.compacted) == (True, True)
    assert found.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (found.retention_ms, found.retention_bytes) == (-1, 7)
    assert found.format is Format.KFS
    assert found.table_freshness_ms == 0


def test_an_empty_policy_neither_deletes_nor_compacts() -> None:
    found = settings({"cleanup.policy": ""})
    assert (found.delete, found.compacted) == (False, False)


def test_defaults_that_contradict_a_topic_are_refused_for_it_and_do_not_undo_it() -> None:
    own, defaults = {"max.compaction.lag.ms": "10"}, {"min.compaction.lag.ms": "20"}
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms \(20\)"):
        settings(own, defaults)
    found = in_effect(own, defaults)
    assert (found.min_compaction_lag_ms, found.max_compaction_lag_ms) == (20, 10)


def test_every_config_is_described_by_name() -> None:
    assert [d.definition.name for d in described({})] == sorted(DEFINITIONS)


def test_synonyms_run_from_the_topic_over_the_broker_to_the_default() -> None:
    found = one("segment.bytes", {"segment.bytes": "+2097152"}, {"segment.bytes": "1048576"})
    assert (found.value, found.source) == ("2097152", ConfigSource.TOPIC)
    assert found.synonyms == (
        Synonym("segment.bytes", "2097152", ConfigSource.TOPIC),
        Synonym("log.segment.bytes", "1048576", ConfigSource.STATIC),
        Synonym("log.segment.bytes", "1073741824", ConfigSource.DEFAULT),
    )


def test_what_the_broker_sets_is_static_and_what_nobody_sets_is_default() -> None:
    assert one("retention.ms", {}, {"retention.ms": "9"}).source is ConfigSource.STATIC
    unset = one("retention.ms", {}, {})
    assert (unset.value, unset.source, unset.synonyms) == ("604800000", ConfigSource.DEFAULT, ())


def test_options_become_configs_under_the_topics_names() -> None:
    options = TopicDefaults(retention_ms=9, max_message_bytes=10, lakelog_format="kfs")
    assert options.configs() == {
        "max.message.bytes": "10",
        "retention.ms": "9",
        "lakelog.format": "kfs",
    }
    assert TopicDefaults().configs() == {}


def test_bad_options_are_refused() -> None:
    with pytest.raises(InvalidConfig):
        TopicDefaults(retention_ms=-5).configs()
