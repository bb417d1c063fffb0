"""Bugs between the log and its stores: buffer, commits, reads, garbage, backends."""

from tests.mutants.plant import Plant, plant

OF_LOG = ("tests/log/test_log.py",)
META = ("tests/conformance/test_meta.py",)

COMMITS: tuple[Plant, ...] = (
    plant(
        "ack before commit",
        "log/commit.py",
        "                    outcome.add_done_callback(partial(self._answer, submitted))\n",
        "                    outcome.add_done_callback(partial(self._answer, submitted))\n"
        "                    for waiter in closed.waiters:\n"
        "                        facts = self._replica.state.streams.facts(\n"
        "                            closed.gathered.streams[waiter.start]\n"
        "                        )\n"
        "                        head = facts.head if facts else 0\n"
        "                        some = waiter.end - waiter.start\n"
        "                        waiter.tell(Appended([0] * some, [head] * some, [-1] * some))\n",
        seeds=range(20),
    ),
    plant(
        "ack before put",
        "log/commit.py",
        "                await self._objects.put(key, (sealed.data,))\n",
        "                self._tasks.spawn(self._objects.put(key, (sealed.data,)), name='later')\n",
        seeds=range(60),
    ),
    plant(
        "objects commit in the order they became durable",
        "log/commit.py",
        "        self._submit_ready()\n        self._put_due()",
        "        self._closed.remove(closed)\n"
        "        self._closed.appendleft(closed)\n"
        "        self._submit_ready()\n        self._put_due()",
        seeds=range(60),
    ),
    plant(
        "a failed put is taken for done",
        "log/commit.py",
        "                if waited_ms > self._options.put_give_up_ms:\n"
        "                    closed.failure = Unavailable(",
        "                if waited_ms > self._options.put_give_up_ms:\n"
        "                    closed.durable = True\n"
        "                    break\n"
        "                    closed.failure = Unavailable(",
        seeds=range(100),
    ),
    plant(
        "ids behind the Horizon",
        "log/commit.py",
        "now_ms = max(self._clock.now_ms(), earliest_ms)",
        "now_ms = self._clock.now_ms()",
        tests=OF_LOG,
    ),
    plant(
        "rewrite on void",
        "log/commit.py",
        "            _tell(submitted, outcome)\n",
        "            if outcome.verdicts[0] == Verdict.VOID:\n"
        "                again = Gathering()\n"
        "                again.add(\n"
        "                    submitted.sealed.commit.stream.tolist(),\n"
        "                    submitted.sealed.batches,\n"
        "                    now_s=self._clock.monotonic_s(),\n"
        "                    deadline_s=0.0,\n"
        "                    settle=lambda _: None,\n"
        "                )\n"
        "                closed = _Closed(again, self._seal(again))\n"
        "                self._closed.append(closed)\n"
        "                self._puts += 1\n"
        "                self._tasks.spawn(self._write(closed), name='again')\n"
        "            _tell(submitted, outcome)\n",
        tests=("tests/sim/test_rules.py",),
    ),
)

READS: tuple[Plant, ...] = (
    plant(
        "mid-batch fetch dropped",
        "native/cut.c",
        "        if (next > cut->offset) {",
        "        if (cut->base >= cut->offset) {",
        tests=OF_LOG,
    ),
    plant(
        "404 = end of data",
        "log/read.py",
        "            return Fetched(ReadStatus.DAMAGED, (), 0, -1, -1)\n",
        "            return Fetched(ReadStatus.OK, (), 0, again.log_start, again.head)\n",
        tests=OF_LOG,
    ),
    plant(
        "an entry is found one too far",
        "streams/index.py",
        "        return view.rows[bisect_right(view.ends, offset, view.first)]\n",
        "        return view.rows[bisect_right(view.ends, offset - 1, view.first)]\n",
        tests=("tests/streams/test_index.py",),
    ),
    plant(
        "budget per partition",
        "log/read.py",
        "            left -= got.size_bytes\n",
        "",
        tests=("tests/sim/test_rules.py",),
    ),
)

GARBAGE: tuple[Plant, ...] = (
    plant(
        "sweep without second pass",
        "log/retention.py",
        "if now_s - since_s >= grace_s]",
        "if grace_s >= 0]",
        tests=OF_LOG,
    ),
    plant(
        "sweep ignores the Horizon",
        "log/retention.py",
        "            if wal_id_time_ms(place.wal_id) < horizon_ms:\n                old.append",
        "            if horizon_ms:\n                old.append",
        seeds=range(120),
    ),
    plant(
        "sweep ignores what entries name",
        "log/retention.py",
        "return [key for key in old if key not in named]",
        "return old",
        tests=OF_LOG,
    ),
    plant(
        "sweep by a clock that is wrong",
        "log/retention.py",
        '        """One pass; returns how many objects were deleted."""\n'
        "        now_ms = await agreed_now_ms(\n"
        "            self._clock, self._objects.clock_skew_ms,"
        " skew_max_ms=self._options.clock_skew_max_ms\n"
        "        )\n",
        '        """One pass; returns how many objects were deleted."""\n'
        "        now_ms: int | None = self._clock.now_ms()\n",
        tests=("tests/log/test_clock_jumps.py",),
        seeds=range(100),
    ),
)

BACKENDS: tuple[Plant, ...] = (
    plant(
        "restart numbering after trim",
        "meta/memory.py",
        "        gone = min(before, log.head) - log.start\n",
        "        gone = min(before, log.head + 1) - log.start\n",
        tests=META,
    ),
    plant(
        "a key's version begins anew",
        "meta/memory.py",
        "        version = state.next()\n        state.entries",
        "        version = (entry.version if entry else 0) + 1\n        state.entries",
        tests=META,
    ),
    plant(
        "compare-and-swap that only swaps",
        "meta/memory.py",
        "if expect is not None and version != expect:",
        "if False:",
        tests=META,
    ),
    plant(
        "local put without fsync",
        "objects/local_files.py",
        "        os.fsync(descriptor)\n",
        "        pass\n",
        tests=("tests/conformance/test_power_loss.py", "tests/objects/test_local.py"),
    ),
)

PLANTS = COMMITS + READS + GARBAGE + BACKENDS
