"""How often a store looks for what other processes appended."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelog.meta.sqlite_file import connect_file, open_file
from lakelog.meta.sqlite_statements import Append, BeginSession, EndSession
from lakelog.meta.sqlite_threads import (
    ALONE_S,
    FAST_FOR_S,
    FAST_S,
    REST_S,
    SESSIONS_EVERY_S,
    WATCH_FOR_S,
    FileWatch,
)
from lakelog.testing.conformance_meta import ManualClock


class Scene:
    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        self.connections = open_file(path, connect_file)
        self.writer = self.connections.writer
        self.other: sqlite3.Connection = connect_file(str(path), 1.0)
        Append("old", b"x").run(self.writer)
        self.watch = FileWatch(self.connections.reader, self.clock)

    def begin_session(self, connection: sqlite3.Connection) -> str:
        return BeginSession(60_000, self.clock.now_ms()).run(connection)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path / "meta.db")
    yield made
    made.other.close()
    made.connections.close()


def test_nobody_looks_unless_somebody_waits(scene: Scene) -> None:
    assert (scene.watch.pause_s(), scene.watch.asleep) == (None, True)
    scene.watch.want(1.0)
    assert (scene.watch.pause_s(), scene.watch.asleep) == (ALONE_S, False)
    scene.clock.advance(1.0 + WATCH_FOR_S)
    assert scene.watch.pause_s() is None


def test_alone_it_looks_rarely(scene: Scene) -> None:
    scene.watch.own_sessions.add(scene.begin_session(scene.writer))
    scene.watch.want(1000)
    assert scene.watch.look() == {}
    assert scene.watch.pause_s() == ALONE_S


def test_while_others_live_it_looks_more_often(scene: Scene) -> None:
    scene.watch.want(1000)
    session = scene.begin_session(scene.other)
    scene.watch.look()
    assert scene.watch.pause_s() == REST_S
    EndSession(session).run(scene.other)
    scene.watch.look()
    assert scene.watch.pause_s() == ALONE_S


def test_a_session_that_runs_out_in_silence_is_noticed(scene: Scene) -> None:
    scene.watch.want(1000)
    scene.begin_session(scene.other)
    scene.watch.look()
    scene.clock.advance(61)
    scene.watch.look()
    assert scene.watch.pause_s() == ALONE_S
    assert SESSIONS_EVERY_S < 60


def test_while_others_append_it_looks_at_once(scene: Scene) -> None:
    scene.watch.want(1000)
    Append("l", b"1").run(scene.other)
    assert scene.watch.look() == {"l": 1}
    assert scene.watch.pause_s() == FAST_S
    assert scene.watch.look() == {}
    scene.clock.advance(FAST_FOR_S)
    assert scene.watch.pause_s() == ALONE_S


def test_own_appends_are_no_reason_to_hurry(scene: Scene) -> None:
    scene.watch.want(1000)
    scene.watch.own_heads["l"] = Append("l", b"1").run(scene.writer)
    assert scene.watch.look() == {"l": 1}
    assert scene.watch.pause_s() == ALONE_S
