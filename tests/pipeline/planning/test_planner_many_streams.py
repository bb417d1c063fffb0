"""A thousand tiny streams go through one round, on SQLite and a directory."""

import asyncio
from pathlib import Path

import pytest
from tests.pipeline.pipeline_faults import Seeing
from tests.pipeline.pipeline_place import NAMESPACE, sqlite_place

from lakelog.catalog.port import TableName

STREAMS = 1000
ROUND_S_MAX = 60.0
"""A few seconds on two idle cores; what is caught here is work that grows with its square."""


@pytest.mark.parametrize("topics", [1, pytest.param(100, marks=pytest.mark.proof)])
def test_a_thousand_tiny_streams_are_one_round(topics: int, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with sqlite_place(tmp_path) as place:
            size = STREAMS // topics
            for number in range(topics):
                first = number * size + 1
                await place.topic(f"topic-{number}", list(range(first, first + size)))
            await place.produce(*range(1, STREAMS + 1), batches=1, records=2)
            seeing = Seeing()
            report = await place.pipeline(effects=seeing).round()
            assert report.all_obstacles == ()
            assert report.created == STREAMS
            assert sum(topic.rows for topic in report.topics) == 2 * STREAMS
            assert sum(topic.ended for topic in report.topics) == STREAMS
            assert (seeing.seen.count("put file"), seeing.seen.count("commit table")) == (1, topics)
            assert report.seconds < ROUND_S_MAX
            table = await place.tables.load(TableName(NAMESPACE, "topic-0"))
            assert table is not None
            assert table.vector == dict.fromkeys(range(size), 2)
            assert len(table.snapshots) == 1

    asyncio.run(scenario())
