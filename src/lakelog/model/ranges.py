"""Half-open ranges, the only kind our own code has: start is in, end is out."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class ByteRange:
    """The bytes [start, end) of an object."""

    start: int
    end: int

    def __post_init__(self) -> None:
        assert 0 <= self.start <= self.end, (self.start, self.end)

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets [start, end) of a stream."""

    start: int
    end: int

    def __post_init__(self) -> None:
        assert 0 <= self.start <= self.end, (self.start, self.end)

    def __len__(self) -> int:
        return self.end - self.start

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.end
