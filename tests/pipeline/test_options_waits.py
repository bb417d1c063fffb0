"""A wait that is over says what is known, and many waits leave nothing behind."""

import asyncio

import pytest

from lakelog.model.failures import Conflict, OutcomeUnknown, Unavailable
from lakelog.pipeline.options import reading, together, writing


async def forever() -> int:
    await asyncio.Event().wait()
    return 0


async def value(number: int) -> int:
    return number


async def fail(error: Exception) -> int:
    raise error


def test_a_read_that_takes_too_long_is_unavailable_and_a_write_unknown() -> None:
    async def scenario() -> None:
        assert await reading(value(3), limit_s=1) == 3
        assert await writing(value(4), limit_s=1) == 4
        with pytest.raises(Unavailable):
            await reading(forever(), limit_s=0.001)
        with pytest.raises(OutcomeUnknown):
            await writing(forever(), limit_s=0.001)

    asyncio.run(scenario())


def test_the_first_failure_of_many_ends_the_others_and_is_raised_as_it_is() -> None:
    async def scenario() -> None:
        assert await together(value(number) for number in range(5)) == [0, 1, 2, 3, 4]
        before = asyncio.all_tasks()
        with pytest.raises(Conflict):
            await together([forever(), fail(Conflict("x")), forever()])
        assert asyncio.all_tasks() == before
        with pytest.raises(ExceptionGroup):
            await together([forever(), fail(ValueError("a bug"))])

    asyncio.run(scenario())
