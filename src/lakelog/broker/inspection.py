"""Batches whose inspection takes long: they are looked at on a thread, so that the loop goes on.

An uncompressed batch of a megabyte is inspected in well under a millisecond. A compressed one has
to be unpacked, at about a gigabyte a second, and a small one may unpack to a lot: what is behind a
kilobyte is known only afterwards. The hop to a thread costs about 0.1 ms, so it is taken where
unpacking can cost more than that.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final

from lakelog.records.acceptance import BatchRules, Inspection, inspect
from lakelog.records.header import ATTRIBUTES_OFFSET, CODEC_MASK

SLOW_BYTES_MIN: Final = 128 << 10
"""Compressed batches from here on go to a thread."""

THREADS_MAX: Final = 2


def is_slow(data: memoryview) -> bool:
    """Whether inspecting the batch may hold up the loop."""
    return len(data) >= SLOW_BYTES_MIN and bool(data[ATTRIBUTES_OFFSET + 1] & CODEC_MASK)


async def inspect_slowly(data: memoryview, rules: BatchRules) -> Inspection:
    """Inspect on a thread of the process's pool for it."""
    return await asyncio.get_running_loop().run_in_executor(_pool(), inspect, data, rules)


@cache
def _pool() -> ThreadPoolExecutor:
    """Made when the first such batch comes; its threads end with the process."""
    return ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="inspect")
