"""Bugs on the way of batches into records: their limits, budgets, what waiters hear, old ids."""

from tests.mutants.plant import Plant, plant

OF_COMMIT = ("tests/log/test_commit.py",)
OF_BUDGET = ("tests/log/test_budgets_index.py",)
OF_WRITER = ("tests/domain/test_event_queue.py",)

PLANTS: tuple[Plant, ...] = (
    plant(
        "a record forgets the bytes of each event's head",
        "domain/event_queue.py",
        "            room -= len(queued.body) + EVENT_OVERHEAD_BYTES\n",
        "            room -= len(queued.body)\n",
        tests=OF_WRITER,
    ),
    plant(
        "the greatest event forgets its own head",
        "domain/event_queue.py",
        "RECORD_BYTES_MAX - OVERHEAD_BYTES_MAX - EVENT_OVERHEAD_BYTES",
        "RECORD_BYTES_MAX - OVERHEAD_BYTES_MAX",
        tests=OF_WRITER,
    ),
    plant(
        "a commit that is too large ends the process",
        "log/commit.py",
        "                except Failure as error:  # nothing was written",
        "                except Unavailable as error:  # nothing was written",
        tests=OF_COMMIT,
    ),
    plant(
        "the limit of batches forgets producers",
        "domain/commit_event.py",
        "COMMIT_BATCH_BYTES: Final = 28 + 14\n",
        "COMMIT_BATCH_BYTES: Final = 28\n",
        tests=OF_COMMIT,
    ),
    plant(
        "a request goes into one object however many batches it has",
        "log/commit.py",
        "            if len(batches) > batches_max:\n",
        "            if False:\n",
        tests=OF_COMMIT,
    ),
    plant(
        "what gathers while puts are taken has no limit",
        "log/commit.py",
        "        if self._open.batch_count + len(batches) > batches_max:\n",
        "        if len(batches) > batches_max:\n",
        tests=OF_COMMIT,
    ),
    plant(
        "full objects are written in reverse",
        "log/commit.py",
        "            self._close_object(self._full.popleft())\n",
        "            self._close_object(self._full.pop())\n",
        tests=OF_COMMIT,
    ),
    plant(
        "who waits in a full object is never told that its time is over",
        "log/commit.py",
        "            for gathered in self._full:\n                waiting += gathered.waiters\n",
        "",
        tests=OF_COMMIT,
    ),
    plant(
        "a part that is certainly not written speaks for all",
        "log/buffer.py",
        "    alike = len(unknown) in (0, len(failures))\n",
        "    alike = True\n",
        tests=OF_COMMIT,
    ),
    plant(
        "an id is renewed at the end of its life",
        "log/commit.py",
        "        if age_ms > self._options.orphan_ttl_ms / 2:\n",
        "        if age_ms > self._options.orphan_ttl_ms:\n",
        tests=OF_COMMIT,
    ),
    plant(
        "an id is never renewed",
        "log/commit.py",
        "                self._renew_id(closed)\n",
        "",
        tests=OF_COMMIT,
    ),
    plant(
        "an id is renewed at every put",
        "log/commit.py",
        "        if age_ms > self._options.orphan_ttl_ms / 2:\n",
        "        if age_ms >= 0:\n",
        tests=OF_COMMIT,
    ),
    plant(
        "the index has no limit",
        "log/budgets.py",
        "        if held_bytes < self._options.index_bytes_max:\n",
        "        if held_bytes:\n",
        tests=OF_BUDGET,
    ),
    plant(
        "producers never wait for the index",
        "log/log.py",
        "        return not self._index_budget.throttle_ms and all(\n",
        "        return all(\n",
        tests=OF_BUDGET,
    ),
    plant(
        "the budget forgets the views of streams",
        "streams/index.py",
        "        return _ROW_BYTES * self.columns.count + _VIEW_ENTRY_BYTES * self._view_entries\n",
        "        return _ROW_BYTES * self.columns.count\n",
        tests=("tests/streams/test_index.py",),
    ),
    plant(
        "dead entries keep producers out for ever",
        "log/budgets.py",
        "            state.pack()\n",
        "            pass\n",
        tests=OF_BUDGET,
    ),
    plant(
        "the budget is looked at when records come and never when they go",
        "log/budgets.py",
        "    def _applied(self, _: Applied) -> None:\n        self._measure()\n",
        "    def _applied(self, _: Applied) -> None:\n"
        "        self.throttle_ms = max(\n"
        "            self.throttle_ms, throttle_ms(self.held_bytes(), self._options)\n"
        "        )\n",
        tests=OF_BUDGET,
    ),
)
