"""The end of a data file, as much of it as its footer takes: in one request, seldom in two."""

from typing import Final

from lakelog.model.failures import Corrupt
from lakelog.model.ranges import ByteRange
from lakelog.objects.port import ObjectStore
from lakelog.records.table_bytes import TAIL_BYTES, footer_bytes

FOOTER_GUESS_BYTES: Final = 64 << 10
"""What is read of a file's end at first: the footer of about thirty row groups."""


async def read_end(objects: ObjectStore, key: str, size_bytes: int) -> memoryview:
    """What `TableFile.open` needs; `Corrupt` for what is no data file of that size."""
    start = max(0, size_bytes - FOOTER_GUESS_BYTES)
    (end,) = await objects.get_ranges(key, [ByteRange(start, size_bytes)])
    needed = footer_bytes(end[-TAIL_BYTES:])
    if needed > size_bytes:
        raise Corrupt(f"{key} has {size_bytes} bytes, its footer would have {needed}")
    if needed > len(end):
        (end,) = await objects.get_ranges(key, [ByteRange(size_bytes - needed, size_bytes)])
    return end
