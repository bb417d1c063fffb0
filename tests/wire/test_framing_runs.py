"""Frames of one API come as runs: together they are the frames that would come alone."""

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sides import native

from lakelog.wire.apis import ApiKey
from lakelog.wire.frame_runs import FindRun, FrameRun, find_run_in_python
from lakelog.wire.framing import REQUEST_LIMITS, SCRATCH_BYTES, SMALL_FRAME_BYTES_MAX, FrameReader
from lakelog.wire.schema import ProtocolError

KEYS = (ApiKey.PRODUCE, ApiKey.PRODUCE, ApiKey.PRODUCE, ApiKey.FETCH)


def ways() -> list[FindRun]:
    return [find_run_in_python, native().find_run]


def frame(key: int, size: int) -> bytes:
    """A frame of that API whose body is told from others by its size."""
    return struct.pack(">ihh", size + 4, key, 3) + bytes(size)


def taken(reader: FrameReader, pieces: list[bytes]) -> list[bytes | str]:
    """All frames in their order, those of runs one by one, and where reading ended."""
    found: list[bytes | str] = []
    for piece in pieces:
        left = memoryview(piece)
        while left:
            room = reader.get_buffer(-1)
            size = min(len(left), len(room))
            room[:size] = left[:size]
            left = left[size:]
            for item in reader.updated(size):
                if isinstance(item, ProtocolError):
                    found.append(str(item))
                elif isinstance(item, FrameRun):
                    assert item.version == 3
                    while item.count:
                        found.append(bytes(item.take_frame()))
                    assert item.size_bytes == 0
                else:
                    found.append(bytes(item))
    return found


FRAMES = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from((4, 5, 100, 70_000))), max_size=8
)


@given(FRAMES, st.lists(st.integers(0, 100_000), max_size=6), st.booleans())
def test_runs_hold_what_would_come_alone(
    sent: list[tuple[ApiKey, int]], cuts: list[int], broken: bool
) -> None:
    data = b"".join(frame(key, size) for key, size in sent)
    data += struct.pack(">ih", 3, 0) * broken
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    pieces = [data[start:end] for start, end in pairwise(places)]
    alone = taken(FrameReader(bytearray(SCRATCH_BYTES)), pieces)
    for find_run in ways():
        reader = FrameReader(bytearray(SCRATCH_BYTES), run_key=ApiKey.PRODUCE, find_run=find_run)
        assert taken(reader, pieces) == alone


def test_small_frames_that_came_together_are_one_run_and_large_ones_stand_alone() -> None:
    reader = FrameReader(bytearray(SCRATCH_BYTES), run_key=ApiKey.PRODUCE)
    small, large = frame(0, 100), frame(0, SMALL_FRAME_BYTES_MAX)
    data = small * 3 + frame(1, 9) + small * 2
    reader.get_buffer(-1)[: len(data)] = data
    first, fetch, second = reader.updated(len(data))
    assert isinstance(first, FrameRun)
    assert isinstance(second, FrameRun)
    assert (first.count, second.count, first.bare) == (3, 2, False)
    assert first.size_bytes == 3 * len(small)
    assert not isinstance(fetch, FrameRun)
    reader.get_buffer(-1)[:20] = large[:20]
    assert reader.updated(20) == []
    left = memoryview(large)[20:]
    found = []
    while left:
        room = reader.get_buffer(-1)
        size = min(len(room), len(left))
        room[:size] = left[:size]
        left = left[size:]
        found += reader.updated(size)
    (alone,) = found
    assert isinstance(alone, FrameRun)
    assert (alone.count, alone.bare, alone.size_bytes) == (1, True, len(large))


@given(st.binary(max_size=200), st.integers(0, 50), st.integers(-5, 20), st.integers(-5, 120))
def test_the_walk_over_frames_is_the_same_in_both_languages(
    data: bytes, start: int, size_min: int, size_max: int
) -> None:
    twin, kernel = ways()
    if len(data) - start < 6:
        with pytest.raises(ValueError, match="no frame"):
            kernel(data, start, len(data), size_min, size_max)
        return
    found = kernel(data, start, len(data), size_min, size_max)
    assert found == twin(data, start, len(data), size_min, size_max)


def test_limits_of_an_api_bound_its_runs() -> None:
    assert REQUEST_LIMITS.bounds(ApiKey.PRODUCE)[1] > REQUEST_LIMITS.bounds(ApiKey.FETCH)[1]
