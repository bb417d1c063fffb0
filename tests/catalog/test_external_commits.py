"""Changes from outside: numbered, rehearsed, made once, and never such that a table is lost."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.catalog.kit import NAME, Fault, Place, Weather, appending, made, nth
from tests.catalog.kit import advance as one_advance
from tests.profiles import examples

from lakelog.catalog.builtin import BuiltinCatalog
from lakelog.catalog.external_commits import commit_from_outside, numbered
from lakelog.catalog.guard import Malformed
from lakelog.catalog.port import TableName
from lakelog.model.failures import (
    Conflict,
    Failure,
    NotFound,
    OutcomeUnknown,
    Refused,
    Unavailable,
)

Sent = Mapping[str, object]
PROPERTY: Sent = {"action": "set-properties", "updates": {"comment": "x"}}


def committing(
    updates: Sequence[Sent],
    requirements: Sequence[Sent] = (),
    *,
    name: TableName = NAME,
    attempts: int = 3,
) -> Callable[[BuiltinCatalog], tuple[str, bytes]]:
    return lambda catalog: commit_from_outside(
        catalog, name, requirements, updates, attempts=attempts
    )


async def changed(
    place: Place,
    updates: Sequence[Sent],
    requirements: Sequence[Sent] = (),
    *,
    weather: Weather | None = None,
) -> tuple[str, bytes]:
    work = committing(updates, requirements)
    return await place.with_catalog(work, weather=weather, owner=False)


async def columns(place: Place) -> list[dict[str, Any]]:
    """The columns as they are now, as JSON."""
    return await place.with_catalog(
        lambda catalog: [
            field.model_dump(mode="json", by_alias=True)
            for field in catalog.load_table((NAME.namespace, NAME.table)).schema().fields
        ]
    )


async def numbers(place: Place) -> list[int]:
    return await place.with_catalog(
        lambda catalog: [
            schema.schema_id
            for schema in catalog.load_table((NAME.namespace, NAME.table)).metadata.schemas
        ]
    )


def new(number: int, name: str) -> dict[str, Any]:
    return {"id": number, "name": name, "type": "double", "required": False}


def added(fields: Sequence[Any], number: object = 0) -> Sent:
    schema = {"type": "struct", "fields": list(fields), "schema-id": number}
    return {"action": "add-schema", "schema": schema}


CURRENT: Sent = {"action": "set-current-schema", "schema-id": -1}


def test_schemas_are_numbered_after_those_that_are_there() -> None:
    sent = [added([], 0), added([], 7), {"action": "set-current-schema", "schema-id": 7}, CURRENT]
    made_of = numbered(sent, [0, 3])
    found = [update.get("schema", update) for update in made_of]
    assert [one["schema-id"] for one in found if isinstance(one, dict)] == [4, 5, 5, -1]
    assert numbered([PROPERTY, {}], []) == [PROPERTY, {}]
    assert numbered([{"action": "add-schema", "schema": 5}], [1]) == [
        {"action": "add-schema", "schema": 5}
    ]


def test_a_column_is_added_whatever_number_its_schema_was_sent_with() -> None:
    async def scenario() -> None:
        place = await made()
        fields = await columns(place)
        for turn, number in enumerate((0, -1, 0)):
            fields.append(new(90 + turn, f"c{turn}"))
            await changed(place, [added(fields, number), CURRENT])
        assert await columns(place) == fields
        assert await numbers(place) == [0, 1, 2, 3]

    asyncio.run(scenario())


def test_requirements_that_do_not_hold_are_a_conflict_and_are_not_tried_again() -> None:
    async def scenario() -> None:
        place, weather = await made(), Weather()
        stale: Sent = {"type": "assert-current-schema-id", "current-schema-id": 4}
        with pytest.raises(Conflict, match="schema"):
            await changed(place, [PROPERTY], [stale], weather=weather)
        assert [kind for kind, _ in weather.asked].count("key-get") == 1
        create: Sent = {"type": "assert-create"}
        with pytest.raises(Conflict):
            await changed(place, [PROPERTY], [create])

    asyncio.run(scenario())


def test_a_rival_in_between_is_no_conflict_while_the_requirements_hold() -> None:
    async def scenario() -> None:
        place = await made()
        # The log's own commit lands while the first attempt's metadata is being written.
        rival = [appending(one_advance(0, 0, 10))]
        weather = Weather()

        async def interfere(kind: str, key: str, act: Callable[[], Any]) -> Any:
            if kind == "key-put" and rival:
                await place.with_catalog(rival.pop())
            return await Weather.write(weather, kind, key, act)

        rivalled = Rivalled(interfere)
        _, metadata = await changed(place, [PROPERTY], weather=rivalled)
        assert b'"comment":"x"' in metadata
        assert b'lakelog.offsets":"{\\"0\\":10}"' in metadata

    asyncio.run(scenario())


class Rivalled(Weather):
    """Weather in which somebody acts before a write."""

    def __init__(self, interfere: Callable[[str, str, Callable[[], Any]], Any]) -> None:
        super().__init__()
        self._interfere = interfere

    async def write(self, kind: str, key: str, act: Callable[[], Any]) -> Any:
        return await self._interfere(kind, key, act)


def test_a_rival_that_wins_every_time_is_a_conflict() -> None:
    async def scenario() -> None:
        place = await made()
        ends = iter(range(10, 1000, 10))

        async def interfere(kind: str, key: str, act: Callable[[], Any]) -> Any:
            if kind == "key-put":
                end = next(ends)
                await place.with_catalog(appending(one_advance(0, end - 10, end)))
            return await act()

        with pytest.raises(Conflict, match="faster"):
            await changed(place, [PROPERTY], weather=Rivalled(interfere))

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("fate", "failure"),
    [
        (lambda kind, _: Fault.LOST_REQUEST if kind == "key-put" else None, OutcomeUnknown),
        (lambda kind, _: Fault.UNAVAILABLE if kind == "key-put" else None, Unavailable),
        (lambda kind, _: Fault.LOST_REQUEST if kind == "metadata" else None, Unavailable),
    ],
)
def test_a_doubt_is_a_doubt_and_a_no_is_a_no(
    fate: Callable[[str, str], Fault | None], failure: type[Failure]
) -> None:
    async def scenario() -> None:
        place = await made()
        with pytest.raises(failure):
            await changed(place, [PROPERTY], weather=Weather(fate))
        assert b'"comment"' in (await changed(place, [PROPERTY]))[1]

    asyncio.run(scenario())


def test_a_reply_lost_once_is_resolved() -> None:
    async def scenario() -> None:
        place = await made()
        weather = Weather(nth("key-put", 1, Fault.LOST_REPLY))
        location, metadata = await changed(place, [PROPERTY], weather=weather)
        assert "/00001-" in location
        assert b'"comment":"x"' in metadata
        assert "/00002-" in (await changed(place, [PROPERTY]))[0]

    asyncio.run(scenario())


def test_a_table_that_is_not_there_is_not_found() -> None:
    async def scenario() -> None:
        place = await made()
        work = committing([PROPERTY], name=TableName("kafka", "other"))
        with pytest.raises(NotFound):
            await place.with_catalog(work, owner=False)

    asyncio.run(scenario())


def test_the_guard_is_asked_here_too() -> None:
    async def scenario() -> None:
        place = await made()
        for update in (
            {"action": "remove-snapshots", "snapshot-ids": []},
            {"action": "set-properties", "updates": {"gc.enabled": "true"}},
            added([new(90, "c")]),
        ):
            with pytest.raises((Refused, Malformed)):
                await changed(place, [update])

    asyncio.run(scenario())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 1 << 40) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


def mutated(draw: Callable[[Any], Any], value: Any, chance: int) -> Any:
    """The value with some of its parts replaced, dropped or doubled."""
    if draw(st.integers(0, chance)) == 0:
        return draw(JSON)
    if isinstance(value, dict):
        return {
            key: mutated(draw, part, chance)
            for key, part in value.items()
            if draw(st.integers(0, chance))
        }
    if isinstance(value, list):
        kept = [mutated(draw, part, chance) for part in value if draw(st.integers(0, chance))]
        return kept + (kept[:1] if not draw(st.integers(0, chance)) else [])
    return value


def _objects(some: Sequence[Any]) -> list[Sent]:
    """What passes the first look at a body."""
    return [one for one in some if isinstance(one, dict)]


@pytest.fixture(scope="module")
def loop() -> Any:
    with asyncio.Runner() as runner:
        yield runner


@settings(deadline=None, max_examples=examples(60))
@given(data=st.data())
def test_no_change_that_anybody_can_send_breaks_a_table(loop: asyncio.Runner, data: Any) -> None:
    async def scenario() -> None:
        place = await made()
        before = await columns(place)
        base = [
            added([*before, new(90, "price")], 1),
            CURRENT,
            PROPERTY,
            {"action": "remove-properties", "removals": ["comment"]},
            {"action": "set-snapshot-ref", "ref-name": "t", "type": "tag", "snapshot-id": 1},
        ]
        needed = [{"type": "assert-current-schema-id", "current-schema-id": 0}]
        updates, requirements = (
            [mutated(data.draw, one, 30) for one in some if data.draw(st.booleans())]
            for some in (base, needed)
        )
        with suppress(Malformed, Refused, Conflict):
            await changed(place, *(_objects(some) for some in (updates, requirements)))
        after = await columns(place)  # it can be loaded still
        assert [field for field in after if field["id"] <= 12] == before
        assert len(set(await numbers(place))) == len(await numbers(place))
        await place.with_catalog(appending(one_advance(0, 0, 10)))

    loop.run(scenario())
