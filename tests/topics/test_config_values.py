import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.topics.config_values import (
    LONG_MAX,
    ConfigType,
    Value,
    between,
    gzip_level,
    parse,
    show,
    throttled_replicas,
)
from lakelog.topics.failures import InvalidConfig


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.BOOLEAN, "false", False),
        (ConfigType.INT, "+7", 7),
        (ConfigType.INT, "-2147483648", -(1 << 31)),
        (ConfigType.SHORT, "32767", 32_767),
        (ConfigType.LONG, "9223372036854775807", LONG_MAX),
        (ConfigType.DOUBLE, "1e-1", 0.1),
        (ConfigType.DOUBLE, ".5", 0.5),
        (ConfigType.LIST, "", ()),
        (ConfigType.LIST, "compact, delete", ("compact", "delete")),
        (ConfigType.STRING, " x ", "x"),
    ],
)
def test_a_text_is_read_as_its_type(kind: ConfigType, text: str, value: Value) -> None:
    assert parse("name", kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (ConfigType.BOOLEAN, "1", "Expected value to be either true or false"),
        (ConfigType.INT, "2147483648", "Not a number of type INT"),
        (ConfigType.INT, "1_000", "Not a number of type INT"),
        (ConfigType.LONG, "abc", "Not a number of type LONG"),
        (ConfigType.LONG, "9" * 5_000, "Not a number of type LONG"),
        (ConfigType.LONG, "٣", "Not a number of type LONG"),
        (ConfigType.SHORT, "32768", "Not a number of type SHORT"),
        (ConfigType.DOUBLE, "nan", "Not a number of type DOUBLE"),
        (ConfigType.DOUBLE, "1_0", "Not a number of type DOUBLE"),
        (ConfigType.DOUBLE, "", "Not a number of type DOUBLE"),
    ],
)
def test_a_text_of_another_type_is_refused(kind: ConfigType, text: str, reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason) as refused:
        parse("name", kind, text)
    assert len(str(refused.value)) < 1_200


@given(st.sampled_from(list(ConfigType)), st.text(max_size=50))
def test_any_text_is_a_value_or_a_refusal(kind: ConfigType, text: str) -> None:
    try:
        value = parse("name", kind, text)
    except InvalidConfig:
        return
    if kind is not ConfigType.LIST:
        assert parse("name", kind, show(value)) == value


def test_bounds_are_inclusive() -> None:
    check = between(0, 1)
    check("ratio", 0)
    check("ratio", 1.0)
    for outside in (-0.1, 1.1):
        with pytest.raises(InvalidConfig, match="Value must be"):
            check("ratio", outside)


def test_gzip_has_levels_1_to_9_and_its_default() -> None:
    for level in (-1, 1, 9):
        gzip_level("compression.gzip.level", level)
    for level in (-2, 0, 10):
        with pytest.raises(InvalidConfig):
            gzip_level("compression.gzip.level", level)


def test_throttled_replicas_are_a_star_or_pairs() -> None:
    for good in ((), ("*",), ("0:1", "12:3")):
        throttled_replicas("leader.replication.throttled.replicas", good)
    for bad in (("x",), ("0:1", "*"), ("0:",)):
        with pytest.raises(InvalidConfig):
            throttled_replicas("leader.replication.throttled.replicas", bad)
