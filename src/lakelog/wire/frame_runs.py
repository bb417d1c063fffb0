"""Frames of one API that a read brought together, to be taken several at a time."""

import struct
from typing import Protocol, TypeAlias

from lakelog.wire.schema import Buffer

SIZE_BYTES = 4
HEAD = struct.Struct(">ih")  # the size of the frame, and the API key that begins it

Frame: TypeAlias = memoryview


class FrameRun:
    """Complete frames of one API, one behind the other, to be taken several at a time.

    `bare` is one frame that was received into memory of its own, without its size.
    """

    __slots__ = ("bare", "count", "data", "end", "position")

    def __init__(self, data: memoryview, count: int, *, bare: bool = False) -> None:
        self.data = data
        self.position = 0
        self.end = len(data)
        self.count = count
        self.bare = bare

    @property
    def size_bytes(self) -> int:
        """What is left of it, with the sizes of the frames."""
        left = self.end - self.position
        return left + SIZE_BYTES if left and self.bare else left

    @property
    def version(self) -> int:
        """The version of the next request."""
        start = self.position + SIZE_BYTES * (not self.bare) + 2
        return int.from_bytes(self.data[start : start + 2], "big", signed=True)

    def skip_to(self, position: int, frames: int) -> None:
        """The first frames, up to this position, are taken."""
        self.position = position
        self.count -= frames

    def take_frame(self) -> Frame:
        """Take the next frame alone."""
        start = self.position
        if self.bare:
            self.skip_to(self.end, 1)
            return self.data
        start += SIZE_BYTES
        end = start + int.from_bytes(self.data[start - SIZE_BYTES : start], "big")
        self.skip_to(end, 1)
        return self.data[start:end]


class FindRun(Protocol):
    """Where the complete frames end that begin with the API key of the first, and how many.

    The first one, at `start`, is complete. A frame whose size is out of its limits ends the run.
    """

    def __call__(
        self, data: Buffer, start: int, end: int, size_min: int, size_max: int, /
    ) -> tuple[int, int]:
        """Walk over them."""


def find_run_in_python(
    data: Buffer, start: int, end: int, size_min: int, size_max: int, /
) -> tuple[int, int]:
    """The kernel's twin."""
    key = data[start + SIZE_BYTES : start + HEAD.size]
    position, frames = start, 0
    while end - position >= HEAD.size:
        size = int.from_bytes(data[position : position + SIZE_BYTES], "big", signed=True)
        is_alike = data[position + SIZE_BYTES : position + HEAD.size] == key
        fits = max(0, size_min) <= size <= min(size_max, end - position - SIZE_BYTES)
        if not is_alike or not fits:
            break
        position, frames = position + SIZE_BYTES + size, frames + 1
    return position, frames
