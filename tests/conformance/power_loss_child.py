"""Writes to both embedded stores and says what was acknowledged: `power_loss_child.py DIRECTORY`.

Each acknowledgement is one write to standard output, so that a trace of system calls shows what
had reached the disk before it.
"""

import asyncio
import os
import sys
from pathlib import Path

from lakelog.clock import SystemClock, SystemEntropy
from lakelog.meta.sqlite import SqliteMetadataStore
from lakelog.objects.local import LocalObjectStore


def acknowledged(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def main(directory: Path) -> None:
    store = await SqliteMetadataStore.open(directory / "meta.db", SystemClock())
    objects = await LocalObjectStore.open(directory / "objects", SystemClock(), SystemEntropy())
    log = store.log("l")
    for number in range(12):
        acknowledged("append", await log.append(b"record %d " % number + b"x" * 3000))
        key = f"wal/0/date=2026/{number // 4}/{number}"
        await objects.put(key, [b"object ", b"%d" % number])
        acknowledged("put", key, f"object {number}")
        if number == 6:
            # The WAL is copied back and started anew in the middle of it.
            store._start_checkpoint()
            await log.trim(before=3)
        if number == 8:
            await objects.delete([f"wal/0/date=2026/1/{deleted}" for deleted in range(4, 8)])
            acknowledged("deleted")
    await store.close()
    await objects.close()


asyncio.run(main(Path(sys.argv[1])))
