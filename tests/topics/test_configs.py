"""The set of configs against what a real broker answered is in tests/golden."""

import pytest

from lakelog.topics.config_values import show
from lakelog.topics.configs import DEFINITIONS, check_lags, values
from lakelog.topics.failures import InvalidConfig


@pytest.mark.parametrize("name", list(DEFINITIONS))
def test_a_default_is_allowed_and_reads_back_as_itself(name: str) -> None:
    definition = DEFINITIONS[name]
    assert definition.parse(show(definition.default)) == definition.default
    assert definition.documentation.endswith(".")


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("cleanup.policy", "delete,shred"),
        ("compression.zstd.level", "23"),
        ("delete.retention.ms", "-1"),
        ("flush.messages", "0"),
        ("lakelog.format", "orc"),
        ("lakelog.table.freshness.ms", "-1"),
        ("lakelog.table.retention.ms", "-2"),
        ("local.retention.ms", "-3"),
        ("max.compaction.lag.ms", "0"),
        ("max.message.bytes", "-1"),
        ("message.timestamp.type", "createtime"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.insync.replicas", "0"),
        ("retention.ms", "-2"),
        ("segment.bytes", "1048575"),
        ("segment.index.bytes", "3"),
        ("segment.ms", "0"),
    ],
)
def test_a_value_out_of_bounds_is_refused(name: str, bad: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        values({name: bad})


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete", "delete,compact", ""])
def test_every_cleanup_policy_of_kafka_is_accepted(policy: str) -> None:
    assert show(values({"cleanup.policy": policy})["cleanup.policy"]) == policy


@pytest.mark.parametrize("codec", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_type_of_kafka_is_accepted(codec: str) -> None:
    assert values({"compression.type": codec})["compression.type"] == codec


def test_a_codec_that_nobody_knows_is_refused_as_such() -> None:
    with pytest.raises(InvalidConfig, match="String must be one of"):
        values({"compression.type": "brotli"})


def test_tiers_are_refused_with_the_reason() -> None:
    with pytest.raises(InvalidConfig, match="object storage"):
        values({"remote.storage.enable": "true"})
    assert values({"remote.storage.enable": "false"})["remote.storage.enable"] is False


def test_a_config_that_is_not_in_the_set_is_refused() -> None:
    for name in ("nosuch", "message.format.version", "log.retention.ms", ""):
        with pytest.raises(InvalidConfig, match=f"Unknown topic config name: {name}"):
            values({name: "1"})


def test_compaction_lags_must_not_cross() -> None:
    with pytest.raises(InvalidConfig, match="conflict"):
        check_lags(values({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}))
    check_lags(values({"min.compaction.lag.ms": "1", "max.compaction.lag.ms": "1"}))
