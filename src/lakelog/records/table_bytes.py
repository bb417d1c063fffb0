"""The bytes of a data file between Parquet's library and us, with the checksums that it lacks.

The library trusts a footer so far that a damaged one ends the process, so none reaches it
unchecked. Every row group has a CRC-32C in the footer, and the footer one directly before it, in
bytes that no other reader looks at: Parquet finds its footer from the end of the file.
"""

import io
from typing import BinaryIO, Final

from lakelog.model.failures import Corrupt
from lakelog.records.kernels import crc32c

MARK: Final = b"LKL1"
MARK_BYTES: Final = 8
"""The mark and the footer's CRC-32C."""

TAIL_BYTES: Final = 8
"""The end of a file: the footer's length and a magic number."""

_MAGIC: Final = b"PAR1"


def footer_bytes(tail: memoryview) -> int:
    """How many bytes at the end of a file `checked_footer` needs, by its last `TAIL_BYTES`."""
    if len(tail) < TAIL_BYTES or bytes(tail[-4:]) != _MAGIC:
        raise Corrupt("this is no data file: its end is not Parquet's")
    return int.from_bytes(tail[-TAIL_BYTES:-4], "little") + TAIL_BYTES + MARK_BYTES


def checked_footer(end: memoryview) -> memoryview:
    """The footer at the end of these bytes, with Parquet's length and magic behind it."""
    start = len(end) - footer_bytes(end)
    if start < 0 or bytes(end[start : start + 4]) != MARK:
        raise Corrupt("the footer of a data file has no checksum")
    footer = end[start + MARK_BYTES :]
    if int.from_bytes(end[start + 4 : start + MARK_BYTES], "big") != crc32c(footer):
        raise Corrupt("the CRC-32C of a data file's footer does not match")
    return footer


class CheckedSink(io.RawIOBase):
    """Passes bytes on and knows their CRC-32C since it was last asked; holds the footer back."""

    def __init__(self, sink: BinaryIO) -> None:
        super().__init__()
        self._sink = sink
        self._held: list[bytes] | None = None
        self._crc = 0
        self._discards = False
        self.position = 0

    def writable(self) -> bool:
        """Nothing else can be done with it."""
        return True

    def tell(self) -> int:
        """How many bytes were written, those held back included."""
        return self.position

    def write(self, data: object, /) -> int:
        """Pass these bytes on."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]  # the library hands over buffers
        self.position += len(view)
        if self._discards:
            return len(view)
        if self._held is None:
            self._crc = crc32c(view, self._crc)
            self._sink.write(view)
        else:
            self._held.append(bytes(view))
        return len(view)

    def flush(self) -> None:
        """Nothing is buffered here."""

    def take_crc(self) -> int:
        """The CRC-32C of what was written since the last call."""
        crc, self._crc = self._crc, 0
        return crc

    def discard(self) -> None:
        """Pass nothing on from now on: nobody wants the file any more."""
        self._discards = True

    def hold(self) -> None:
        """Hold back what comes from now on: the index of pages, then the footer."""
        self._held = []

    def finish(self) -> int:
        """Write what was held back, the footer behind its checksum; returns the file's size."""
        end = b"".join(self._held or ())
        footer = len(end) - footer_bytes(memoryview(end)) + MARK_BYTES
        mark = MARK + crc32c(end[footer:]).to_bytes(4, "big")
        self._sink.write(end[:footer] + mark + end[footer:])
        return self.position + MARK_BYTES


class Window(io.RawIOBase):
    """A file of which only the bytes from `start` on are there, as far as `data` goes."""

    def __init__(self, start: int, data: memoryview, size_bytes: int) -> None:
        super().__init__()
        self._start = start
        self._data = data
        self._size_bytes = size_bytes
        self._position = 0

    def readable(self) -> bool:
        """It is for reading."""
        return True

    def seekable(self) -> bool:
        """Any place can be gone to; only those that are there can be read."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a place."""
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}
        self._position = origin[whence] + offset
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        """The bytes from here on; those that are not there are an error."""
        end = self._size_bytes if size < 0 else min(self._position + size, self._size_bytes)
        low, high = self._position - self._start, end - self._start
        if low < 0 or high > len(self._data):
            raise OSError(f"the bytes [{self._position}, {end}) are not there")
        self._position = end
        return bytes(self._data[low:high])
