"""A process of its own on a metadata file: `sqlite_child.py PATH ROLE [ARGUMENT]`.

It prints a line for everything that was acknowledged to it, and ends at the end of its input.
"""

import asyncio
import sys
import time

from lakelog.clock import SystemClock
from lakelog.meta.sqlite import SqliteMetadataStore


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def write(store: SqliteMetadataStore, name: str, count: int) -> None:
    """Append records that carry their writer's name and number, four at a time."""
    log = store.log("l")
    for start in range(0, count, 4):
        records = [f"{name} {number}" for number in range(start, min(start + 4, count))]
        positions = await asyncio.gather(*(log.append(record.encode()) for record in records))
        for position, record in zip(positions, records, strict=True):
            say(position, record)


async def tail(store: SqliteMetadataStore, count: int) -> None:
    """Print each record with the time from its writing to its reading."""
    log, position = store.log("l"), 0
    say("ready")
    while position < count:
        await log.wait(after=position, timeout_s=10)
        page = await log.read(after=position)
        now = time.monotonic()
        for record in page.records:
            say(now - float(record))
        position = page.end


async def pace(store: SqliteMetadataStore, count: int) -> None:
    """Append the time of writing, every few milliseconds."""
    for _ in range(count):
        await store.log("l").append(str(time.monotonic()).encode())
        await asyncio.sleep(0.004)


async def main() -> None:
    path, role, name, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    store = await SqliteMetadataStore.open(path, SystemClock(), busy_s=20.0)
    match role:
        case "write":
            await write(store, name, count)
        case "tail":
            await tail(store, count)
        case "pace":
            await pace(store, count)
        case _:
            raise AssertionError(role)
    await store.close()


asyncio.run(main())
