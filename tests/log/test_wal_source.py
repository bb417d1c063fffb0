"""What was read is what was written, or it is not served: whole objects, and parts of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.data_requests import accepted
from tests.broker.data_stage import batch
from tests.sides import both, side

from lakelog.log.buffer import ObjectBuffer, Sealed, seal
from lakelog.log.wal_source import verified_object, verified_run, walk_run
from lakelog.model.failures import Corrupt
from lakelog.model.ids import DomainId
from lakelog.records.batch_rows import rows_of
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.codecs import Codec
from lakelog.records.fetched_batches import FetchedBatches
from lakelog.records.header import parse_header
from lakelog.wal.layout import PREFIX, make_wal_id

WAL_ID = make_wal_id(1_700_000_000_000, bytes(range(10)))
SIZES = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 300)), min_size=1, max_size=5)


def sealed_of(rows: list[tuple[int, int]]) -> Sealed:
    gathered = ObjectBuffer()
    for stream, size in rows:
        gathered.add(rows_of([stream], [accepted(batch(bytes(size), b"x"))]))
    return seal(gathered, wal_id=WAL_ID, domain=DomainId(0), zone="z", created_ms=1)


@both
@given(rows=SIZES)
def test_the_batches_of_an_object_and_of_its_parts_are_found(
    rows: list[tuple[int, int]], compiled: bool
) -> None:
    sealed = sealed_of(rows)
    commit = sealed.commit
    with side(compiled):
        whole = verified_object(sealed.data, WAL_ID)
        for stream in set(commit.stream.tolist()):
            of_stream = commit.stream == stream
            start = int(commit.byte_start[of_stream][0])
            length = int(commit.byte_length[of_stream].sum())
            run = whole.run(start, length)
            part = verified_run(sealed.data[start : start + length])
            assert run.batches == part.batches
            assert run.offset_counts.tolist() == part.offset_counts.tolist() == [2] * len(part.ends)
            assert run.size_bytes == part.size_bytes == sum(map(len, part.batches))
            assert len(part.batches) == int(of_stream.sum())


@both
def test_every_flipped_bit_of_an_object_is_noticed(compiled: bool) -> None:
    data = bytearray(sealed_of([(1, 5), (2, 9)]).data)
    with side(compiled):
        verified_object(memoryview(data), WAL_ID)
        for at in range(len(data)):
            data[at] ^= 1 << at % 8
            with pytest.raises(Corrupt):
                verified_object(memoryview(data), WAL_ID)
            data[at] ^= 1 << at % 8
        for size in range(0, len(data), 7):
            with pytest.raises(Corrupt):
                verified_object(memoryview(data)[:size], WAL_ID)


@both
def test_every_flipped_bit_of_a_part_is_noticed_but_for_the_leader_epoch(compiled: bool) -> None:
    sealed = sealed_of([(1, 5), (1, 9)])
    start = int(sealed.commit.byte_start[0])
    data = bytearray(sealed.data[start:-4])
    epochs = {
        int(place) - start + PREFIX.size + 12 + byte
        for place in sealed.commit.byte_start
        for byte in range(4)
    }
    with side(compiled):
        for at in set(range(len(data))) - epochs:
            data[at] ^= 1 << at % 8
            for read in (verified_run, walked):
                with pytest.raises(Corrupt):
                    read(memoryview(data))
            data[at] ^= 1 << at % 8
        for size in range(1, len(data)):
            if size != int(sealed.commit.byte_length[0]):
                for read in (verified_run, walked):
                    with pytest.raises(Corrupt):
                        read(memoryview(data)[:size])


def walked(run: memoryview) -> FetchedBatches:
    return walk_run(run, 7)


@both
@given(
    sizes=st.lists(st.integers(0, 4), max_size=6),
    codec=st.sampled_from(Codec),
    base_offset=st.sampled_from((0, 5, (1 << 63) - 1_000)),
)
def test_the_batches_of_a_run_have_offsets_that_go_on(
    sizes: list[int], codec: Codec, base_offset: int, compiled: bool
) -> None:
    options = BatchOptions(codec=codec, append_time_ms=9, producer_id=3, last_offset_delta=4)
    batches = [build_batch([Record(b"k", b"v", 5)] * size, options) for size in sizes]
    run = memoryview(b"".join(len(batch).to_bytes(4, "big") + batch for batch in batches))
    with side(compiled):
        found = walk_run(run, base_offset)
    places = zip(found.starts.tolist(), found.ends.tolist(), strict=True)
    assert [run[start:end] for start, end in places] == batches
    assert found.next_offset(base_offset) == base_offset + 5 * len(batches)
    assert found.base_offsets.tolist() == [base_offset + 5 * at for at in range(len(batches))]
    headers = [parse_header(memoryview(batch)) for batch in batches]
    assert found.record_counts.tolist() == sizes
    assert found.attributes.tolist() == [header.attributes for header in headers]
    assert found.base_timestamps_ms.tolist() == [header.base_timestamp_ms for header in headers]
    assert found.max_timestamps_ms.tolist() == [header.max_timestamp_ms for header in headers]
    assert found.producer_ids.tolist() == [header.producer_id for header in headers]
    assert found.crcs.tolist() == [header.crc for header in headers]


def test_an_object_under_another_id_is_refused() -> None:
    other = make_wal_id(1_700_000_000_001, bytes(range(10)))
    with pytest.raises(Corrupt, match="and not"):
        verified_object(sealed_of([(1, 5)]).data, other)
