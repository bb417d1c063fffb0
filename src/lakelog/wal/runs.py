"""A run: neighbouring batches of one stream inside a WAL object, each behind its length.

An index entry names byte runs, and a run is what a ranged read brings back. Its bytes vouch for
themselves: the length stands twice (before the batch and in it), base offset and magic have the
one value that acceptance allows, and the batch's CRC-32C covers everything from the attributes on.
So every single flipped bit and every cut is seen, with one exception that cannot matter: the
partition leader epoch, which nobody reads and which is written anew whenever a batch is served.
"""

from struct import Struct
from typing import Final

from crc32c import crc32c

from lakelog.model.failures import Corrupt

PREFIX: Final = Struct(">I")
"""A batch's length, before it."""

BATCH_HEADER_BYTES: Final = 61
RECORD_COUNT: Final = Struct(">i")
RECORD_COUNT_OFFSET: Final = 57

_HEAD: Final = Struct(">IqiibI")
"""Prefix, then the batch's base offset, length, leader epoch, magic and CRC."""

_LENGTH_PREFIX_BYTES: Final = 12
_ATTRIBUTES_OFFSET: Final = 21
_MAGIC: Final = 2


def split_run(run: memoryview) -> list[memoryview]:
    """The batches of a run by their lengths alone, for bytes that were verified before."""
    return _split(run, verify=False)


def verify_run(run: memoryview) -> list[memoryview]:
    """The batches of a run, each one checked against its CRC; `Corrupt` says what is wrong."""
    return _split(run, verify=True)


def _split(run: memoryview, *, verify: bool) -> list[memoryview]:
    batches = []
    position = 0
    while position < len(run):
        start = position + PREFIX.size
        if position + _HEAD.size > len(run):
            raise Corrupt(f"the run ends within the batch at byte {position}")
        size, base_offset, length, _, magic, crc = _HEAD.unpack_from(run, position)
        position = start + size
        if size < BATCH_HEADER_BYTES or length + _LENGTH_PREFIX_BYTES != size:
            raise Corrupt(f"the batch at byte {start} has lengths {size} and {length}")
        if position > len(run):
            raise Corrupt(f"the run ends within the batch at byte {start}")
        if base_offset != 0 or magic != _MAGIC:
            raise Corrupt(f"the batch at byte {start} has offset {base_offset}, magic {magic}")
        if verify and crc32c(run[start + _ATTRIBUTES_OFFSET : position]) != crc:
            raise Corrupt(f"the CRC-32C of the batch at byte {start} does not match")
        batches.append(run[start:position])
    return batches
