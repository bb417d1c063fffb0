"""Bugs in what is remembered of producers and streams, and in what is let go of."""

from tests.mutants.plant import Plant, plant

MACHINE = ("tests/domain/test_machine.py",)
BUDGET = ("tests/log/test_budgets_producers.py",)
JUDGE = ("tests/domain/test_judge.py", "tests/domain/test_machine_model.py")

PLANTS: tuple[Plant, ...] = (
    plant(
        "the newest of two batches that fit a retry answers",
        "domain/judge.py",
        "break  # the oldest that fits",
        "continue  # the oldest that fits",
        tests=MACHINE,
    ),
    plant(
        "an invented producer id is let in",
        "broker/produce_checks.py",
        "producer < broker.cluster.producer_ids.known_end",
        "producer < 1 << 63",
        tests=("tests/broker/test_produce.py",),
    ),
    plant(
        "a read of the counter that failed answers others",
        "topics/id_blocks.py",
        "if self._read_answered <= begun_before:",
        "if self._reads_begun <= begun_before:",
        tests=("tests/topics/test_id_blocks_producers.py",),
    ),
    plant(
        "the level of a domain does not bound its producers",
        "domain/state.py",
        "return PRODUCERS_MAX if self.level >= PRODUCERS_LEVEL else PRODUCERS_MAX_BEFORE",
        "return PRODUCERS_MAX",
        tests=MACHINE,
    ),
    plant(
        "a full table refuses producers it knows",
        "log/budgets.py",
        "return row is None or state.producers.row(row, producer) != NONE",
        "return row is None",
        tests=BUDGET,
    ),
    plant(
        "rows of dropped streams stay",
        "domain/machine.py",
        "if state.is_sparse():",
        "if state.index.is_sparse():",
        tests=("tests/domain/test_packing.py",),
    ),
    plant(
        "not read back before the pointer moves",
        "domain/checkpoint_store.py",
        "if await self._objects.get(key) != content:",
        "if False:",
        tests=("tests/domain/test_checkpoint_store.py",),
    ),
    plant(
        "orphan streams go at the first look",
        "topics/changes.py",
        "if now_s - since_s >= GRACE_S",
        "if now_s - since_s >= 0",
        tests=("tests/topics/test_changes_orphans.py",),
    ),
    plant(
        "streams that hold records are taken for orphans",
        "streams/table.py",
        'rows[self.columns["head"][rows] == 0]',
        'rows[self.columns["head"][rows] >= 0]',
        tests=("tests/topics/test_changes_orphans.py",),
    ),
    plant(
        "nobody is let go before the time",
        "log/budgets.py",
        "await replica.submit(ExpireProducers(cutoff_ms))",
        "pass",
        tests=BUDGET,
    ),
    plant(
        "a gap in the sequence is taken for the next batch",
        "native/judge.c",
        " || sequence != expected\n            || sequence < 0",
        "",
        tests=JUDGE,
    ),
    plant(
        "a zombie's epoch is not looked at",
        "native/judge.c",
        "            || epoch_at(commit, at) != table->epochs[writer]",
        "           ",
        tests=JUDGE,
    ),
    plant(
        "another producer goes on where the last one stopped",
        "native/judge.c",
        "long_at(commit->producers, at) != table->producers[writer]\n            || ",
        "",
        tests=JUDGE,
    ),
    plant(
        "a batch without a producer among others is taken",
        "native/judge.c",
        "if (long_at(commit->producers, at) >= 0) {\n            return false;",
        "if (long_at(commit->producers, at) >= 0) {\n            continue;",
        tests=JUDGE,
    ),
    plant(
        "a window takes the first batches and not the last",
        "native/judge.c",
        "at = max64(run->start, run->end - WINDOW_BATCHES); at < run->end;",
        "at = run->start; at < min64(run->end, run->start + WINDOW_BATCHES);",
        tests=JUDGE,
    ),
    plant(
        "an entry forgets the one before it",
        "native/judge.c",
        "    entries->previous[entry] = streams->entries[run->row];\n",
        "    entries->previous[entry] = NONE;\n",
        tests=JUDGE,
    ),
    plant(
        "an object's time goes back",
        "native/judge.c",
        "max64(table->times[writer], judgement->time_ms)",
        "judgement->time_ms",
        tests=JUDGE,
    ),
)
