"""Sockets and child processes that tests leave open, named at the end of the run, which then fails.

After each test it is looked at which sockets and children there are that were not there before;
what is still there when everything was torn down was left open by that test, or by a fixture that
it was the first to use. Threads that would keep the process alive are named too. Linux only: it
reads /proc.
"""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.process_groups import SPARK

DESCRIPTORS = Path("/proc/self/fd")
TASKS = Path("/proc/self/task")
HELPERS = (
    "multiprocessing.resource_tracker",
    "multiprocessing.forkserver",
    "multiprocessing.spawn",
)
"""Children that Python keeps until it ends."""

WORKER_KEY = "left_open"


def sockets() -> set[str]:
    """The sockets of this process, by the kernel's number."""
    found = set()
    for name in os.listdir(DESCRIPTORS):
        try:
            target = os.readlink(DESCRIPTORS / name)
        except OSError:
            continue  # the descriptor of the listing itself
        if target.startswith("socket:"):
            found.add(target)
    return found


def _connection(thing: str) -> tuple[str, str] | None:
    """Both addresses of a TCP socket, as the kernel writes them: hexadecimal, with the port."""
    inode = thing.removeprefix("socket:[").removesuffix("]")
    for table in ("tcp", "tcp6"):
        for line in _read(f"/proc/self/net/{table}").splitlines()[1:]:
            fields = line.split()
            if fields[9] == inode:
                return fields[1], fields[2]
    return None


def children() -> set[str]:
    """The living children of this process, by number and start: numbers come again."""
    found = set()
    for task in TASKS.iterdir():
        try:
            numbers = (task / "children").read_text().split()
        except OSError:
            continue
        for number in numbers:
            status = _read(f"/proc/{number}/stat").rpartition(")")[2].split()
            if status and status[0] != "Z":
                found.add(f"child {number} since {status[19]}")
    return found


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _command(child: str) -> str:
    return _read(f"/proc/{child.split()[1]}/cmdline").replace("\0", " ").strip()[:120]


def _is_ours(child: str) -> bool:
    command = _command(child)
    return bool(command) and not any(helper in command for helper in HELPERS)


class LeftOpen:
    """A plugin of pytest: remembers which test was the first after which something was open."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._before = self._open()
        self._first_seen: dict[str, str] = {}
        self._addresses: dict[str, tuple[str, str]] = {}  # of sockets, while they were open
        self.found: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Look after each test, its teardown included."""
        done = yield
        for thing in self._open() - self._before:
            if thing not in self._first_seen:
                self._first_seen[thing] = item.nodeid
                self._look_at(thing)
        return done

    def _look_at(self, thing: str) -> None:
        """Note where a new socket leads to: at the end of the run nobody may know any more."""
        addresses = _connection(thing)
        if addresses is not None:
            self._addresses[thing] = addresses

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Everything was torn down: what is there now was left."""
        left = sorted(self._open() - self._before)
        self.found += [self._named(thing) for thing in left if not self._is_py4j(thing)]
        worker = getattr(self._config, "workeroutput", None)
        if worker is not None:
            worker[WORKER_KEY] = self.found
        elif self.found and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        """Hear what a process of pytest-xdist found."""
        del error
        self.found += getattr(node, "workeroutput", {}).get(WORKER_KEY, [])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name what was left open."""
        if self.found:
            terminalreporter.section("left open by tests", red=True)
            for line in self.found:
                terminalreporter.write_line(line)
        others = [one for one in threading.enumerate() if not one.daemon]
        names = sorted(one.name for one in others if one is not threading.main_thread())
        if names:
            terminalreporter.write_line(f"threads that still run: {', '.join(names)}")

    def _open(self) -> set[str]:
        if not DESCRIPTORS.is_dir():
            return set()
        is_controller = bool(getattr(self._config.option, "numprocesses", None))
        if is_controller and not hasattr(self._config, "workerinput"):
            return set()  # its sockets and children are the other processes of the run
        return sockets() | {child for child in children() if _is_ours(child)}

    def _is_py4j(self, thing: str) -> bool:
        """PySpark keeps its sockets to a Java that has ended until the process ends, too."""
        is_spark = self._first_seen.get(thing, "").startswith(SPARK)
        return is_spark and thing.startswith("socket:")

    def _named(self, thing: str) -> str:
        about = _command(thing) if thing.startswith("child") else self._addresses.get(thing, "")
        what = f"{thing} ({about})" if about else thing
        return f"{what}: seen first after {self._first_seen.get(thing, 'the last test')}"
