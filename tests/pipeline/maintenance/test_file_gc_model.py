"""G1, C5, rule 19: whatever happens between two looks, nothing is deleted that anything names.

Garbage is garbage for ever, so this holds without a grace too; half of the runs have none.
"""

import asyncio
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.maintenance.sweep_model import GRACE_S, SweepModel
from tests.profiles import examples

NUMBERS = st.lists(st.integers(0, (1 << 16) - 1), max_size=400)


async def scenario(script: Iterator[int]) -> SweepModel:
    model = SweepModel(script, grace_s=GRACE_S * (next(script, 0) % 2))
    await model.make_topic()
    await model.make_table()
    await model.finish_table()
    while (choice := next(script, None)) is not None:
        match choice % 8:
            case 0:
                await model.sweep()
            case 1 if choice % 5 == 0:
                model.sweeper = model.new_sweeper()
            case _:
                await model.random_step()
        assert not model.guard.violations
    assert not await model.guard.missing()
    await end(model)
    return model


async def end(model: SweepModel) -> None:
    """After everything is quiet nothing unnamed is left, and the tables are left alone."""
    await model.settle()
    reports = []
    for _ in range(8):
        model.clock.seconds += GRACE_S
        reports.append(await model.sweep())
    report = reports[-1]
    assert not report.deleted
    assert not report.moved
    assert not report.suspects
    assert not model.guard.violations
    named = set(await model.guard.named())
    assert await model.guard.keys() == named


@settings(max_examples=examples(150))
@given(NUMBERS)
def test_no_order_of_steps_lets_the_sweeper_delete_what_is_named(numbers: list[int]) -> None:
    asyncio.run(scenario(iter(numbers)))


@pytest.mark.parametrize("seed", range(40))
def test_long_histories_end_with_exactly_what_is_named(seed: int) -> None:
    source = random.Random(seed)
    asyncio.run(scenario(iter([source.randrange(1 << 16) for _ in range(3000)])))
