"""Power loss: what a disk holds that keeps nothing but what was synced (reliability, fault 10).

The system calls of a writing process are traced. A model of the disk keeps, of each file, the bytes
as of its last sync, and of each directory the names as of its last sync: the least that a
filesystem may leave. At each acknowledgement the power fails: the stores are opened on what is
left, and everything acknowledged must be there.
"""

import asyncio
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lakelog.clock import SystemClock, SystemEntropy
from lakelog.meta.sqlite import SqliteMetadataStore
from lakelog.objects.local import LocalObjectStore

CHILD = Path(__file__).with_name("power_loss_child.py")
CALLS = "openat,pwrite64,write,writev,ftruncate,fsync,fdatasync,rename,renameat,renameat2"
CALLS += ",unlink,unlinkat,mkdir,mkdirat,rmdir"


@dataclass
class File:
    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""


@dataclass
class Directory:
    names: dict[str, "File | Directory"] = field(default_factory=dict)
    durable: dict[str, "File | Directory"] = field(default_factory=dict)


class Disk:
    """What is written, and what would survive."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.top = Directory()

    def find(self, path: str) -> "File | Directory | None":
        node: File | Directory | None = self.top
        for name in self._names(path):
            if not isinstance(node, Directory):
                return None
            node = node.names.get(name)
        return node

    def holds(self, path: str) -> bool:
        return path == self._root or path.startswith(self._root + "/")

    def folder(self, path: str) -> tuple[Directory, str]:
        node = self.find(path.rpartition("/")[0])
        assert isinstance(node, Directory), path
        return node, path.rpartition("/")[2]

    def _names(self, path: str) -> list[str]:
        return [name for name in path[len(self._root) :].split("/") if name]

    def save(self, target: Path) -> None:
        save(self.top, target)


def save(directory: Directory, target: Path) -> None:
    target.mkdir()
    for name, node in directory.durable.items():
        if isinstance(node, Directory):
            save(node, target / name)
        elif not name.endswith("-shm"):
            # Shared memory between processes: it is mapped, and made anew after a restart.
            (target / name).write_bytes(node.durable)


def calls(trace: str) -> Iterator[tuple[str, str, str]]:
    """Calls as (name, arguments, result), in the order they ended."""
    begun: dict[str, str] = {}
    for line in trace.splitlines():
        process, _, rest = line.partition(" ")
        rest = rest.strip()
        if rest.endswith("<unfinished ...>"):
            begun[process] = rest.removesuffix("<unfinished ...>").rstrip()
            continue
        resumed = re.match(r"<\.\.\. \w+ resumed>(.*)", rest)
        if resumed:
            rest = begun.pop(process) + resumed[1]
        call = re.fullmatch(r"(\w+)\((.*)\)\s+= (.*)", rest)
        if call and not call[3].startswith("-1"):
            yield call[1], call[2], call[3]


def unhex(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def strings(arguments: str) -> list[bytes]:
    return [unhex(found) for found in re.findall(r'"((?:\\x..)*)"', arguments)]


def descriptor(text: str) -> str:
    """The path which strace writes behind a descriptor."""
    found = re.match(r"(?:AT_FDCWD|\d+)<((?:\\x..)*)>", text)
    return unhex(found[1]).decode() if found else ""


class Replay:
    """Follows a trace on a model of the disk."""

    def __init__(self, root: str) -> None:
        self.disk = Disk(root)
        self._offsets: dict[str, int] = {}

    def call(self, name: str, arguments: str, result: str) -> str | None:
        """Apply a call; what the process said to its standard output is returned."""
        if name == "write" and arguments.startswith("1<"):
            return strings(arguments)[0].decode()
        if name == "openat":
            self._open(arguments, descriptor(result))
        elif name in ("mkdir", "mkdirat", "unlink", "unlinkat", "rmdir"):
            self._name(name, arguments)
        elif name.startswith("rename"):
            self._rename(arguments)
        elif self.disk.holds(descriptor(arguments)):
            self._change(name, arguments, descriptor(arguments))
        return None

    def _open(self, arguments: str, path: str) -> None:
        if "O_CREAT" in arguments and self.disk.holds(path):
            folder, name = self.disk.folder(path)
            folder.names.setdefault(name, File())
            if "O_EXCL" in arguments:
                self._offsets[path] = 0

    def _name(self, call: str, arguments: str) -> None:
        path = strings(arguments)[0].decode()
        if self.disk.holds(path) and path != self.disk._root:
            folder, name = self.disk.folder(path)
            if call.startswith("mkdir"):
                folder.names[name] = Directory()
            else:
                del folder.names[name]

    def _rename(self, arguments: str) -> None:
        source, target = (found.decode() for found in strings(arguments))
        if not target.startswith("/"):
            inside = re.findall(r"\d+<((?:\\x..)*)>", arguments)
            target = f"{unhex(inside[-1]).decode()}/{target}"
        if self.disk.holds(target):
            old, old_name = self.disk.folder(source)
            new, new_name = self.disk.folder(target)
            new.names[new_name] = old.names.pop(old_name)

    def _change(self, call: str, arguments: str, path: str) -> None:
        node = self.disk.find(path)
        if isinstance(node, Directory):
            assert call in ("fsync", "fdatasync"), call
            node.durable = dict(node.names)
        elif isinstance(node, File):
            self._change_file(node, call, arguments, path)

    def _change_file(self, file: File, call: str, arguments: str, path: str) -> None:
        if call in ("fsync", "fdatasync"):
            file.durable = bytes(file.content)
            return
        tail = int(arguments.rpartition(", ")[2])
        if call == "ftruncate":
            del file.content[tail:]
            file.content.extend(bytes(tail - len(file.content)))
            return
        data = b"".join(strings(arguments))
        start = tail if call == "pwrite64" else self._offsets[path]
        if call != "pwrite64":
            self._offsets[path] += len(data)
        file.content.extend(bytes(max(0, start - len(file.content))))
        file.content[start : start + len(data)] = data


def traced(directory: Path, output: Path) -> str:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed: power loss is not tested")
    run = subprocess.run(
        [
            *(strace, "-f", "-y", "-xx", "-s", "10000000", "-e", f"trace={CALLS}"),
            *("-o", str(output), sys.executable, str(CHILD), str(directory)),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "ptrace" in run.stderr:
        pytest.skip("this system does not allow tracing: power loss is not tested")
    assert run.returncode == 0, run.stderr
    return output.read_text()


async def survives(directory: Path, said: list[str]) -> None:
    store = await SqliteMetadataStore.open(directory / "meta.db", SystemClock())
    objects = await LocalObjectStore.open(directory / "objects", SystemClock(), SystemEntropy())
    try:
        page = await store.log("l").read(after=0)
        appended = [int(line.split()[1]) for line in said if line.startswith("append")]
        assert page.end >= max(appended)
        assert page.start + len(page.records) == page.end + 1
        for position, record in enumerate(page.records, page.start):
            assert record.startswith(b"record %d " % (position - 1))
        deleted = "deleted" in said
        for line in said:
            if line.startswith("put") and not (deleted and "2026/1/" in line):
                _, key, content = line.split(" ", 2)
                assert bytes(await objects.get(key)) == content.encode()
    finally:
        await store.close()
        await objects.close()


def test_everything_acknowledged_survives_power_loss_at_every_acknowledgement(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    replay = Replay(str(directory))
    said: list[str] = []
    for call in calls(traced(directory, tmp_path / "trace")):
        line = replay.call(*call)
        if line is None:
            continue
        said.append(line.strip())
        left = tmp_path / f"left-{len(said)}"
        replay.disk.save(left)
        asyncio.run(survives(left, said))
    assert len(said) == 25


def test_the_model_loses_what_was_not_synced(tmp_path: Path) -> None:
    replay = Replay("/d")
    quoted = "".join(f"\\x{byte:02x}" for byte in b"/d/f")
    opened = f'AT_FDCWD<\\x2f>, "{quoted}", O_WRONLY|O_CREAT|O_EXCL, 0644'
    written = f'3<{quoted}>, "\\x61\\x62", 2'
    steps = [("openat", opened, f"3<{quoted}>"), ("write", written, "2")]
    for step in steps:
        replay.call(*step)
    replay.disk.save(tmp_path / "nothing")
    replay.call("fsync", "4<\\x2f\\x64>", "0")
    replay.disk.save(tmp_path / "name")
    replay.call("fdatasync", f"3<{quoted}>", "0")
    replay.disk.save(tmp_path / "all")
    assert list((tmp_path / "nothing").iterdir()) == []
    assert (tmp_path / "name" / "f").read_bytes() == b""
    assert (tmp_path / "all" / "f").read_bytes() == b"ab"
