"""A broker's index for readers: packed entries are the ones that the pipeline sees."""

import numpy as np
from tests.broker.whole import Stores, run, whole_broker
from tests.server.index_stage import filled, made, swapped

from lakelog.index.ports import StreamRange
from lakelog.server.read_index import ReadIndex
from lakelog.streams.objects import FileName, WalName


def test_columns_say_what_views_say_in_several_domains() -> None:
    async def scenario(stores: Stores) -> None:
        async with whole_broker(stores, domains=3) as broker:
            topic = await made(broker, "t", 5)
            streams = topic.streams()
            await filled(broker, streams, objects=4)
            index = ReadIndex(broker, stores.clock)
            for number, stream in enumerate(streams[:3]):
                await swapped(index, stream, start=2, end=6, key=f"compaction/v1/{number}")
            ranges = [StreamRange(one, low, 7) for one in (*streams, 999) for low in (0, 3, 6)]
            views = await index.views(ranges)
            for view, found in zip(views, await index.entries(ranges, entries_max=9), strict=True):
                assert (view is None) == (found is None)
                if view is None or found is None:
                    continue
                assert found.domain == broker.log.domain_of(view.stream)
                assert (found.log_start, found.head) == (view.log_start, 8)
                ids = np.frombuffer(found.wal_ids, np.uint8).reshape(-1, 16)
                for at, entry in enumerate(view.entries):
                    label = found.names[found.labels[at]]
                    if isinstance(entry.name, WalName):
                        assert entry.name == WalName(entry.name.wal_id, label)
                        assert ids[at].tobytes() == bytes(entry.name.wal_id)
                    else:
                        assert entry.name == FileName(entry.kind, label)
                    assert (found.starts[at], found.ends[at]) == (entry.start, entry.end)
                    assert (found.byte_starts[at], found.byte_lengths[at]) == (
                        entry.byte_start,
                        entry.byte_length,
                    )
                    assert found.max_timestamps_ms[at] == entry.max_timestamp_ms
                assert len(found.starts) == len(view.entries)

    run(scenario)


def test_a_long_range_begins_with_its_first_entries() -> None:
    async def scenario(stores: Stores) -> None:
        async with whole_broker(stores) as broker:
            (stream,) = (await made(broker, "t")).streams()
            await filled(broker, [stream], objects=5)
            index = ReadIndex(broker, stores.clock)
            (found,) = await index.entries([StreamRange(stream, 3, 10)], entries_max=2)
            assert found is not None
            assert found.starts.tolist() == [2, 4]

    run(scenario)


def test_bounds_move_with_the_log_and_end_with_the_stream() -> None:
    async def scenario(stores: Stores) -> None:
        async with whole_broker(stores) as broker:
            streams = (await made(broker, "t", 2)).streams()
            index = ReadIndex(broker, stores.clock)
            assert await index.bounds(streams) == [(0, 0), (0, 0)]
            await filled(broker, streams, objects=2)
            await broker.log.trim({streams[0]: 3})
            assert await index.bounds([*streams, streams[0]]) == [(3, 4), (0, 4), (3, 4)]
            await broker.log.drop_streams(streams[:1])
            assert await index.bounds(streams) == [None, (0, 4)]
            assert await index.first_at({streams[0]: 0, streams[1]: 1001}) == {streams[1]: 1}

    run(scenario)
