"""The members of one group as processes: start, ask to leave, kill, and collect what they noted.

Rules: a member is ended by its own process id only. It ends by itself when this process does,
because its standard input ends. A client that cannot be had raises MissingError.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.peer import PeerAbsentError, cache_directory, find_peer
from tests.compat.clients import MissingError
from tests.compat.groups.job import MemberJob
from tests.compat.groups.notes import Life, load_events
from tests.compat.kafkajs import KafkajsProducer

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[2]
COMPILE_TIMEOUT_S = 60.0
LEAVE_TIMEOUT_S = 60.0
PYTHON_CLIENTS = ("confluent", "aiokafka", "kafka-python")


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in a group: which client sits there, and how it commits."""

    client: str
    commits: str = "sync"
    static: bool = False

    def __str__(self) -> str:
        return f"{self.client} (static)" if self.static else self.client


@dataclass(slots=True)
class Member:
    """One running or ended process of a slot."""

    at: int
    job: MemberJob
    process: subprocess.Popen[bytes]
    killed_ms: int | None = None
    asked_to_leave: bool = False

    def life(self) -> Life:
        """Return what the member noted so far."""
        events = load_events(Path(self.job.notes))
        return Life(self.job.name, events, self.killed_ms, self.job.commits == "automatic")


def prepare(clients: Sequence[str], folder: Path) -> None:
    """Find, fetch or build what the clients need; raise MissingError where that cannot be."""
    if "java" in clients:
        compile_java(folder)
    if "kafkajs" in clients:
        KafkajsProducer().prepare()


def compile_java(folder: Path) -> None:
    """Compile the Java member against the peer's jars."""
    compiler = shutil.which("javac")
    if compiler is None:
        raise MissingError("no javac on the path")
    try:
        libraries = find_peer().libraries
    except PeerAbsentError as absent:
        raise MissingError(str(absent)) from absent
    done = subprocess.run(
        [
            *(compiler, "-nowarn", "-cp", f"{libraries}/*"),
            *("-d", str(folder / "classes"), str(FOLDER / "GroupMember.java")),
        ],
        capture_output=True,
        timeout=COMPILE_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")


def java_command(folder: Path, main_class: str, arguments: Sequence[str]) -> list[str]:
    """Return the command that runs a class of ours with the peer's jars."""
    command = find_peer().command(main_class, *arguments, heap="128m")
    at = command.index("-cp")
    command[at + 1] = f"{folder / 'classes'}:{command[at + 1]}"
    # A short life on few cores: the first compiler is enough.
    return [command[0], "-XX:TieredStopAtLevel=1", *command[1:]]


def member_command(client: str, job: MemberJob, folder: Path) -> list[str]:
    """Return the command that runs one member."""
    if client in PYTHON_CLIENTS:
        return [sys.executable, "-m", "tests.compat.groups.member", client, *job.arguments()]
    if client == "kafkajs":
        return ["node", str(FOLDER / "kafkajs_member.js"), *job.arguments()]
    assert client == "java", client
    return java_command(folder, "GroupMember", job.arguments())


def environment() -> Mapping[str, str]:
    """Return the environment of members: the own, and where kafkajs is."""
    return {**os.environ, "NODE_PATH": str(cache_directory() / "kafkajs" / "node_modules")}


@dataclass(slots=True)
class Crew:
    """All members that a group ever had."""

    template: MemberJob
    slots: Sequence[Slot]
    folder: Path
    members: list[Member] = field(default_factory=list)
    running: dict[int, Member] = field(default_factory=dict)

    def start(self, at: int) -> Member:
        """Start the member of a slot, for the first time or again."""
        assert at not in self.running, at
        slot = self.slots[at]
        lives = sum(member.at == at for member in self.members)
        name = f"{slot.client}-{at}.{lives + 1}"
        job = replace(
            self.template,
            name=name,
            commits=slot.commits,
            notes=str(self.folder / f"{self.template.group}.{name}.notes"),
            instance=f"{slot.client}-{at}" if slot.static else "",
        )
        log_path = self.folder / f"{self.template.group}.{name}.log"
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                member_command(slot.client, job, self.folder),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=environment(),
            )
        member = Member(at, job, process)
        self.members.append(member)
        self.running[at] = member
        return member

    def kill(self, at: int) -> None:
        """End a member at once: SIGKILL."""
        member = self.running.pop(at)
        member.process.kill()
        member.process.wait()
        member.killed_ms = time.time_ns() // 1_000_000
        close_stdin(member)

    def ask_to_leave(self, at: int) -> Member:
        """Let a member leave; returns at once."""
        member = self.running.pop(at)
        member.asked_to_leave = True
        close_stdin(member)
        return member

    def leave(self, at: int) -> None:
        """Let a member leave, and wait until it is gone."""
        self.ask_to_leave(at).process.wait(LEAVE_TIMEOUT_S)

    def disband(self) -> list[str]:
        """Let all leave and return what was wrong with anybody's end."""
        leaving = [self.ask_to_leave(at) for at in tuple(self.running)]
        late = []
        for member in leaving:
            try:
                member.process.wait(LEAVE_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                late.append(f"{member.job.name} did not leave within {LEAVE_TIMEOUT_S:.0f} s")
        return [*late, *self.untimely()]

    def untimely(self) -> list[str]:
        """Return who ended without being asked, or not in good order."""
        return [
            f"{member.job.name} ended by itself with {member.process.returncode}"
            for member in self.members
            if member.killed_ms is None
            and member.process.poll() is not None
            and (not member.asked_to_leave or member.process.returncode != 0)
        ]

    def end(self) -> None:
        """End whatever still runs."""
        self.running.clear()
        for member in self.members:
            if member.process.poll() is None:
                member.process.kill()
                member.process.wait()
            close_stdin(member)

    def names(self) -> set[str]:
        """Return the client ids of those that should be in the group now."""
        return {member.job.client_id for member in self.running.values()}

    def lives(self) -> list[Life]:
        """Return what all members noted, oldest first."""
        return [member.life() for member in self.members]


def close_stdin(member: Member) -> None:
    """Close a member's standard input; it may be gone already."""
    assert member.process.stdin is not None, "started with a pipe"
    try:
        member.process.stdin.close()
    except BrokenPipeError:
        return
