"""Several processes on one file: order, density, kill -9, and how soon a reader sees an append."""

import asyncio
import subprocess
import sys
from pathlib import Path

from lakelog.clock import SystemClock
from lakelog.meta.sqlite import SqliteMetadataStore
from lakelog.testing.conformance_log import whole_log

CHILD = Path(__file__).with_name("sqlite_child.py")


def start(path: Path, role: str, name: str, count: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(CHILD), str(path), role, name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
    )


def finish(process: "subprocess.Popen[str]") -> list[str]:
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return output.splitlines()


def read(path: Path) -> list[str]:
    async def run() -> list[str]:
        store = await SqliteMetadataStore.open(path, SystemClock())
        try:
            return [record.decode() for record in await whole_log(store.log("l"))]
        finally:
            await store.close()

    return asyncio.run(run())


def acknowledged(lines: list[str]) -> dict[int, str]:
    found = {}
    for line in lines:
        position, _, record = line.partition(" ")
        found[int(position)] = record
    return found


def test_three_processes_create_one_file_and_share_one_dense_log(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    writers = [start(path, "write", name, 300) for name in "abc"]
    told: dict[int, str] = {}
    for writer in writers:
        part = acknowledged(finish(writer))
        assert len(part) == 300
        assert not told.keys() & part.keys()
        told |= part
    records = read(path)
    assert [told[position] for position in range(1, 901)] == records
    for name in "abc":
        # Groups of one writer follow each other; within a group callers may overtake.
        own = [int(record.split()[1]) // 4 for record in records if record.startswith(name)]
        assert own == sorted(own)


def test_killed_writers_leave_a_dense_log_with_everything_they_were_told(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    told: dict[int, str] = {}
    for round_number in range(8):
        victim = start(path, "write", f"v{round_number}", 1_000_000)
        witness = start(path, "write", f"w{round_number}", 40)
        assert victim.stdout is not None
        heard = [victim.stdout.readline().strip() for _ in range(10 + 37 * round_number)]
        victim.kill()
        rest, _ = victim.communicate(timeout=60)
        # The last line may have been cut by the kill.
        heard += [line for line in rest.split("\n")[:-1] if line]
        for part in (acknowledged(heard), acknowledged(finish(witness))):
            assert not told.keys() & part.keys()
            told |= part
    records = read(path)
    missing = {
        position: record
        for position, record in told.items()
        if position > len(records) or records[position - 1] != record
    }
    assert not missing
    assert len(set(records)) == len(records)


def test_a_reader_in_another_process_sees_appends_within_milliseconds(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    tail = start(path, "tail", "-", 200)
    assert tail.stdout is not None
    assert tail.stdout.readline() == "ready\n"
    finish(start(path, "pace", "-", 200))
    seconds = sorted(map(float, finish(tail)))
    assert len(seconds) == 200
    # About 1 ms here; the bound leaves room for a machine that is busy with other tests.
    assert seconds[100] < 0.05, seconds
