"""Bugs of a broker's hold on its name and its session, and of the file that it is kept in."""

from tests.mutants.plant import Plant, plant

REBIRTH = ("tests/domain/test_rebirth.py",)
NAMES = ("tests/topics/test_names_kept.py",)
KEPT = ("tests/meta/test_sqlite_write_session.py",)
LOST = ("tests/meta/test_sqlite_lost.py",)
LOST_OBJECTS = ("tests/objects/test_local_lost.py",)

HOLD: tuple[Plant, ...] = (
    plant(
        "a reload leaves what is pending without an end",
        "domain/event_queue.py",
        "            _fail(waiters, OutcomeUnknown(reason))\n        self._pending.clear()\n",
        "            del waiters\n        self._pending.clear()\n",
        tests=REBIRTH,
    ),
    plant(
        "a reload leaves what waits without an end",
        "domain/event_queue.py",
        "        _fail([queued.outcome for queued in self._queue], Unavailable(reason))\n",
        "",
        tests=REBIRTH,
    ),
    plant(
        "what waited is said to be unknown",
        "domain/event_queue.py",
        "        _fail([queued.outcome for queued in self._queue], Unavailable(reason))\n",
        "        _fail([queued.outcome for queued in self._queue], OutcomeUnknown(reason))\n",
        tests=REBIRTH,
    ),
    plant(
        "who is born again does not ask for its name",
        "domain/replica.py",
        "                self._check_name()\n                incarnation",
        "                incarnation",
        tests=REBIRTH,
    ),
    plant(
        "a reload shows the past",
        "domain/replica.py",
        "        if loaded.position > self.state.position:\n",
        "        if loaded.position >= 0:\n",
        tests=REBIRTH,
    ),
    plant(
        "who is fenced keeps its name",
        "domain/replica.py",
        "        self.doubt_name()\n",
        "",
        tests=REBIRTH,
    ),
    plant(
        "a doubted name still counts",
        "topics/cluster.py",
        "if self._session is None or not self._has_key or self._is_doubted:",
        "if self._session is None or not self._has_key:",
        tests=NAMES,
    ),
    plant(
        "a running broker takes another for its own past",
        "topics/cluster.py",
        "(is_first and _is_our_past(held, node))",
        "_is_our_past(held, node)",
        tests=NAMES,
    ),
)

SESSIONS: tuple[Plant, ...] = (
    plant(
        "a busy loop costs its session",
        "meta/sqlite.py",
        "        self._kept.keep_alive(self._writer.commit)\n",
        "",
        tests=KEPT,
    ),
    plant(
        "a dead loop keeps its session",
        "meta/sqlite_write.py",
        "if self.over or now_s >= self._asked_s + self._keep_s:",
        "if self.over:",
        tests=KEPT,
    ),
    plant(
        "a session that the thread keeps is not believed in",
        "topics/cluster.py",
        "return max(self._alive_until_s, self._session.kept_alive_s + SESSION_TTL_S)",
        "return self._alive_until_s",
        tests=NAMES,
    ),
    plant(
        "a session that has ended is believed in",
        "meta/sqlite_write.py",
        "            self._renewed_s = self._kept_alive_s = self._tried_s\n",
        "            self._renewed_s = self._tried_s\n"
        "        self._kept_alive_s = self._clock.monotonic_s()\n",
        tests=KEPT,
    ),
)

FILES: tuple[Plant, ...] = (
    plant(
        "what is committed to a lost file is acknowledged",
        "meta/sqlite_write.py",
        "outcome if isinstance(outcome, Failure) else unknown for outcome in outcomes",
        "unknown if isinstance(outcome, OutcomeUnknown) else outcome for outcome in outcomes",
        tests=LOST,
    ),
    plant(
        "a lost file is not looked for",
        "meta/sqlite.py",
        "Writer(connections.writer, connections.files, busy_s=busy_s)",
        "Writer(connections.writer, busy_s=busy_s)",
        tests=LOST,
    ),
    plant(
        "another file in the place of a lost one is taken for it",
        "meta/sqlite_file.py",
        "        return status.st_ino == self.inode and status.st_dev == self.device\n",
        "        return bool(status.st_ino)\n",
        tests=LOST,
    ),
    plant(
        "a lost WAL is not missed",
        "meta/sqlite_file.py",
        'for suffix in ("", "-wal", "-shm"))',
        'for suffix in ("",))',
        tests=LOST,
    ),
    plant(
        "a put into another directory of that name counts",
        "objects/local_files.py",
        "        # A11: after the put, before anybody hears of it: who opens it next finds the"
        " object.\n"
        "        self._check_root()\n",
        "",
        tests=LOST_OBJECTS,
    ),
)

PLANTS = HOLD + SESSIONS + FILES
