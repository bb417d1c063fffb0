"""Tables made without PyIceberg are those that PyIceberg makes; their pointers come and go once."""

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadataUtil, new_table_metadata
from tests.catalog.kit import (
    DEFINITION,
    NAME,
    TOPIC_ID,
    Fault,
    FaultyMeta,
    FaultyObjects,
    Place,
    Weather,
    advance,
    appended,
    memory,
    nth,
    run,
)

from lakelog.catalog.commit import iceberg_schema, partition_spec, sort_order
from lakelog.catalog.definition import table_properties
from lakelog.catalog.pointers import Pointers, TableCreation, first_metadata
from lakelog.catalog.port import TableDefinition, TableName
from lakelog.clock import SystemClock, SystemEntropy
from lakelog.model.failures import Conflict, OutcomeUnknown, Refused, Unavailable

UUID = "11111111-2222-4333-8444-555555555555"
OTHER = replace(DEFINITION, topic_id="f" * 32)


def births(there: Place, weather: Weather | None = None) -> TableCreation:
    weather = weather or Weather()
    meta, objects = FaultyMeta(there.meta, weather), FaultyObjects(there.objects, weather)
    return TableCreation(meta, objects, SystemClock(), SystemEntropy())


@settings(deadline=None)
@given(
    st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=3),
    st.text(st.characters(codec="ascii"), min_size=1, max_size=20),
)
def test_it_is_what_the_library_makes(properties: dict[str, str], topic: str) -> None:
    definition = TableDefinition(NAME, topic, TOPIC_ID, "c", properties)
    ours = first_metadata(definition, location="s3://b/t", table_uuid=UUID, now_ms=1234)
    theirs = new_table_metadata(
        iceberg_schema(),
        partition_spec(),
        sort_order(),
        "s3://b/t",
        {"format-version": "2", **table_properties(definition)},
    )
    parsed = TableMetadataUtil.parse_raw(ours.decode())
    assert str(parsed.table_uuid) == UUID
    assert parsed.last_updated_ms == 1234
    apart = {"table_uuid", "last_updated_ms"}
    assert parsed.model_dump(exclude=apart) == theirs.model_dump(exclude=apart)
    written = json.loads(theirs.model_dump_json())
    assert json.loads(ours).keys() == written.keys()


def test_the_table_is_the_same_as_one_that_the_library_made_and_takes_rows() -> None:
    async def work() -> None:
        there, elsewhere = memory(), memory()
        pointer = await births(there).create(DEFINITION)
        tables, made = there.tables(), elsewhere.tables()
        view = await tables.create(DEFINITION)
        other = await made.create(DEFINITION)
        assert view.metadata_location == pointer.metadata_location
        assert replace(view, uuid="", token="", metadata_location="") == replace(
            other, uuid="", token="", metadata_location=""
        )
        done = await appended(tables, advance(0, 0, 5), advance(1, 0, 7))
        assert done.table.vector == {0: 5, 1: 7}
        assert await births(there).owners("kafka") == {NAME: TOPIC_ID}
        found = await births(there).create(DEFINITION)
        assert found.metadata_location == done.table.metadata_location
        await tables.close()
        await made.close()

    run(work)


def test_brokers_that_make_the_same_table_make_one_and_leave_nothing_else() -> None:
    async def work() -> None:
        there = memory()
        made = await asyncio.gather(*(births(there).create(DEFINITION) for _ in range(5)))
        assert len({pointer.metadata_location for pointer in made}) == 1
        assert len(await there.keys()) == 1

    run(work)


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.LOST_REQUEST])
@pytest.mark.parametrize("kind", ["metadata", "key-put"])
def test_a_creation_with_a_lost_message_makes_one_table(kind: str, fault: Fault) -> None:
    async def work() -> None:
        there = memory()
        pointer = await births(there, Weather(nth(kind, 1, fault))).create(DEFINITION)
        assert pointer == await Pointers(there.meta).get(NAME)
        assert len(await there.keys()) == 1

    run(work)


@pytest.mark.parametrize(
    ("kind", "fault", "failure"),
    [
        ("metadata", Fault.LOST_REPLY, Unavailable),
        ("metadata", Fault.UNAVAILABLE, Unavailable),
        ("key-put", Fault.LOST_REQUEST, OutcomeUnknown),
        ("key-put", Fault.UNAVAILABLE, Unavailable),
    ],
)
def test_a_creation_that_stays_without_an_answer_says_so_and_deletes_nothing(
    kind: str, fault: Fault, failure: type[Exception]
) -> None:
    async def work() -> None:
        there = memory()
        weather = Weather(lambda asked, _: fault if asked == kind else None)
        with pytest.raises(failure):
            await births(there, weather).create(DEFINITION)
        assert not [key for asked, key in weather.asked if asked == "delete"]
        assert await births(there).owners("kafka") == {}
        await births(there).create(DEFINITION)
        assert await births(there).owners("kafka") == {NAME: TOPIC_ID}

    run(work)


class Rival(Weather):
    """Somebody does something just before our first put of the pointer."""

    def __init__(self, act: Any, *, lost: bool = False) -> None:
        super().__init__()
        self._act = act
        self._lost = lost

    async def write(self, kind: str, key: str, act: Any) -> Any:
        if kind == "key-put" and self._act is not None:
            rival, self._act = self._act, None
            if self._lost:
                await act()
            await rival()
            if self._lost:
                raise OutcomeUnknown("the reply was lost")
        return await super().write(kind, key, act)


def test_the_name_of_another_topics_table_is_refused_before_or_after_the_write() -> None:
    async def work() -> None:
        there = memory()
        rival = Rival(lambda: births(there).create(OTHER))
        with pytest.raises(Refused):
            await births(there, rival).create(DEFINITION)
        with pytest.raises(Refused):
            await births(there).create(DEFINITION)
        assert len(await there.keys()) == 1
        assert await births(there).owners("kafka") == {NAME: OTHER.topic_id}

    run(work)


def test_a_table_that_came_and_went_is_a_conflict() -> None:
    async def work() -> None:
        there = memory()

        class Gone(Weather):
            async def write(self, kind: str, key: str, act: Any) -> Any:
                if kind == "key-put":
                    raise Conflict("it was there")
                return await super().write(kind, key, act)

        with pytest.raises(Conflict):
            await births(there, Gone()).create(DEFINITION)
        assert await there.keys() == set()

    run(work)


def test_a_table_made_without_a_reply_and_changed_at_once_is_found() -> None:
    async def work() -> None:
        there = memory()
        tables = there.tables()
        rival = Rival(lambda: appended(tables, advance(0, 0, 5)), lost=True)
        pointer = await births(there, rival).create(DEFINITION)
        view = await tables.load(NAME)
        assert view is not None
        assert (view.metadata_location, view.vector) == (pointer.metadata_location, {0: 5})
        await tables.close()

    run(work)


def test_a_drop_takes_the_table_of_its_topic_only() -> None:
    async def work() -> None:
        there = memory()
        await births(there).drop(NAME, topic_id=TOPIC_ID)
        await births(there).create(DEFINITION)
        await births(there).drop(NAME, topic_id=OTHER.topic_id)
        assert await births(there).owners("kafka") == {NAME: TOPIC_ID}
        await births(there).drop(NAME, topic_id=TOPIC_ID)
        await births(there).drop(NAME, topic_id=TOPIC_ID)
        assert await births(there).owners("kafka") == {}
        await births(there).create(OTHER)
        await births(there).drop(NAME, topic_id=TOPIC_ID)
        assert await births(there).owners("kafka") == {NAME: OTHER.topic_id}

    run(work)


def test_a_drop_goes_on_when_a_commit_was_faster_and_a_commit_does_not_bring_it_back() -> None:
    async def work() -> None:
        there = memory()
        await births(there).create(DEFINITION)
        tables = there.tables()
        view = await tables.load(NAME)
        assert view is not None
        rival = Rival(lambda: appended(tables, advance(0, 0, 5)))
        await births(there, rival).drop(NAME, topic_id=TOPIC_ID)
        assert await tables.load(NAME) is None
        await tables.close()

    run(work)


def test_a_drop_without_a_reply_spares_the_table_that_came_after_it() -> None:
    async def work() -> None:
        there = memory()
        await births(there).create(DEFINITION)
        rival = Rival(lambda: births(there).create(OTHER), lost=True)
        await births(there, rival).drop(NAME, topic_id=TOPIC_ID)
        assert await births(there).owners("kafka") == {NAME: OTHER.topic_id}

    run(work)


def test_a_drop_that_stays_unknown_says_so() -> None:
    async def work() -> None:
        there = memory()
        await births(there).create(DEFINITION)
        lost = Weather(lambda kind, _: Fault.LOST_REQUEST if kind == "key-put" else None)
        with pytest.raises(OutcomeUnknown):
            await births(there, lost).drop(NAME, topic_id=TOPIC_ID)

    run(work)


def test_a_pointer_to_anywhere_is_nobodys() -> None:
    async def work() -> None:
        there = memory()
        name = TableName("kafka", "x")
        await Pointers(there.meta).move(name, "memory:///tables/odd.json", expect=0)
        assert await births(there).owners("kafka") == {name: None}

    run(work)


def test_a_broker_loads_no_library_for_it() -> None:
    script = (
        "import sys, lakelog.catalog.pointers\n"
        "print([name for name in ('pyiceberg', 'pyarrow', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
