import dataclasses

import pytest

from lakelog.coordinator.options import GroupOptions


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("session_timeout_min_ms", 0),
        ("session_timeout_min_ms", 1_800_001),
        ("members_max", 0),
        ("initial_rebalance_delay_ms", -1),
        ("assignment_interval_ms", -1),
        ("offsets_retention_ms", 0),
        ("consumer_assignors", ()),
        ("consumer_assignors", ("uniform", "sticky")),
    ],
)
def test_a_value_without_a_meaning_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        dataclasses.replace(GroupOptions(), **{name: value})  # type: ignore[arg-type]  # on purpose


def test_no_delay_and_no_interval_are_fine() -> None:
    options = GroupOptions(initial_rebalance_delay_ms=0, assignment_interval_ms=0)
    assert options.consumer_assignors[0] == "uniform"


def test_every_number_has_a_bound() -> None:
    for field in dataclasses.fields(GroupOptions):
        if field.type is int or field.type == "int":
            with pytest.raises(ValueError, match=field.name.removesuffix("_max_ms")):
                dataclasses.replace(GroupOptions(), **{field.name: -1})  # type: ignore[arg-type]  # on purpose
