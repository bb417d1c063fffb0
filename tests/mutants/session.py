"""Bugs of a broker's hold on its name and its session, and of the file that it is kept in."""

from tests.mutants.plant import Plant, plant

REBIRTH = ("tests/domain/test_rebirth.py",)
NAMES = ("tests/topics/test_names_kept.py",)

PLANTS: tuple[Plant, ...] = (
    plant(
        "a reload leaves what is pending without an end",
        "domain/writer.py",
        "            _fail(waiters, OutcomeUnknown(reason))\n        self._pending.clear()\n",
        "            del waiters\n        self._pending.clear()\n",
        tests=REBIRTH,
    ),
    plant(
        "a reload leaves what waits without an end",
        "domain/writer.py",
        "        _fail([queued.outcome for queued in self._queue], Unavailable(reason))\n",
        "",
        tests=REBIRTH,
    ),
    plant(
        "what waited is said to be unknown",
        "domain/writer.py",
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
        "if self._has_key and not self._is_doubted else 0.0",
        "if self._has_key else 0.0",
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
