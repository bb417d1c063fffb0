"""Bugs in what a record means, in checkpoints and in the way to the log."""

from tests.mutants.plant import Plant, plant

MACHINE = ("tests/domain/test_machine.py",)
MODEL = ("tests/domain/test_machine_model.py",)
CHECKPOINT = ("tests/domain/test_checkpoint_model.py", "tests/domain/test_checkpoint_store.py")
BYTES = ("tests/domain/test_envelope.py", "tests/domain/test_events.py")

MEANING: tuple[Plant, ...] = (
    plant(
        "a repeated stamp counts again",
        "domain/machine.py",
        "record.stamp <= last:",
        "record.stamp < last:",
        tests=MACHINE,
    ),
    plant(
        "a new incarnation needs no Hello",
        "domain/machine.py",
        "return isinstance(record.events[0], Hello | Genesis)",
        "return True",
        tests=MACHINE,
    ),
    plant(
        "Horizon ignored at commit",
        "domain/judge.py",
        "if wal_time_ms(event.wal_id) < state.horizon_ms:",
        "if False:",
        tests=MACHINE,
    ),
    plant(
        "unknown PID accepts 16 before 0",
        "domain/judge.py",
        "return Verdict.ACCEPTED if may_have_expired or first == 0 else Verdict.OUT_OF_SEQUENCE",
        "return Verdict.ACCEPTED",
        tests=MACHINE,
    ),
    plant(
        "dedup vectorised against the old state",
        "domain/judge.py",
        "    expected[1:] = after[:-1] % SEQUENCE_END\n",
        "    expected[1:] = event.sequence[1:]\n",
        tests=MODEL,
    ),
    plant(
        "wrong base offset on a duplicate",
        "domain/judge.py",
        "judged.offsets[at] = batch.offset",
        "judged.offsets[at] = head",
        tests=MACHINE,
    ),
    plant(
        "a window of four batches",
        "streams/producers.py",
        "WINDOW_BATCHES: Final = 5",
        "WINDOW_BATCHES: Final = 4",
        tests=MACHINE,
    ),
    plant(
        "sequences do not wrap",
        "streams/producers.py",
        "SEQUENCE_END: Final = 1 << 31",
        "SEQUENCE_END: Final = 1 << 32",
        tests=MACHINE,
    ),
    plant(
        "implicit stream creation",
        "domain/judge.py",
        "        if row is None:\n            judged",
        "        if row is None:\n"
        "            from lakelog.model.ids import ZERO_TOPIC_ID as topic\n"
        "            state.streams.add([stream], topic=topic, first_partition=0, position=1)\n"
        "            row = state.streams.row_of[stream]\n"
        "        if row is None:\n            judged",
        tests=MACHINE,
    ),
    plant(
        "exact-match swap after Trim",
        "domain/machine.py",
        " and int(old[0]) != int(ordered[0]):",
        ":",
        tests=MACHINE,
    ),
    plant(
        "a trim moves the log start back",
        "domain/machine.py",
        'if wanted > int(columns["log_start"][row]):',
        'if wanted != int(columns["log_start"][row]):',
        tests=MACHINE,
    ),
    plant(
        "producers younger than the Horizon expire",
        "domain/machine.py",
        "older_than(min(event.cutoff_ms, state.horizon_ms))",
        "older_than(event.cutoff_ms)",
        tests=MACHINE,
    ),
    plant(
        "a trimmed entry stays referenced",
        "streams/index.py",
        '        arrays["stream"][gone] = NONE\n',
        "",
        tests=(*MODEL, "tests/streams/test_index.py"),
    ),
    plant(
        "a level above ours is applied",
        "domain/envelope.py",
        "if level > level_max:",
        "if False:",
        tests=BYTES,
    ),
    plant(
        "unknown kind skipped",
        "domain/events.py",
        "        return _DECODERS[Kind(kind)](data)\n",
        "        return _DECODERS.get(kind, lambda _: Barrier())(data)\n",
        tests=BYTES,
    ),
    plant(
        "batches of a Commit may overlap",
        "native/commit.c",
        " ? start != before : start < before)",
        " && start != before)",
        tests=BYTES,
    ),
    plant(
        "a Commit may name bytes beyond its object",
        "native/commit.c",
        "PyBool_FromLong(sound && end <= size)",
        "PyBool_FromLong(sound)",
        tests=BYTES,
    ),
    plant(
        "checksum of a record not checked",
        "domain/envelope.py",
        "if crc32c(view[: -_CRC.size]) != _CRC.unpack_from(view, len(view) - _CRC.size)[0]:",
        "if False:",
        tests=BYTES,
    ),
)

STATE: tuple[Plant, ...] = (
    plant(
        "a checkpoint in the order of arrival",
        "domain/pages.py",
        'order = np.lexsort((table["zone"], table["low"], table["high"], table["kind"]))',
        'order = np.arange(len(table["zone"]))',
        tests=CHECKPOINT,
    ),
    plant(
        "a dropped stream leaves its page as it was",
        "streams/table.py",
        "removed = {bucket for bucket, position in self.removed.items() if position > since}",
        "removed: set[int] = set()",
        tests=CHECKPOINT,
    ),
    plant(
        "an expired producer leaves its page as it was",
        "domain/machine.py",
        '            columns["producer"][stream_row] = NONE\n'
        '        columns["changed"][stream_row] = state.position\n',
        '            columns["producer"][stream_row] = NONE\n',
        tests=CHECKPOINT,
    ),
    plant(
        "a window's turn shows in the checkpoint",
        "streams/producers.py",
        'turn = self.columns["newest"][rows].astype(np.int64)[:, None] + 1',
        'turn = self.columns["newest"][rows].astype(np.int64)[:, None] * 0',
        tests=CHECKPOINT,
    ),
    plant(
        "pointer moves back",
        "domain/checkpoint_store.py",
        "if before and before[0].position >= mine.position:",
        "if before and before[0].position == mine.position:",
        tests=CHECKPOINT,
        seeds=range(120),
    ),
    plant(
        "trim to newest checkpoint",
        "domain/checkpoint_store.py",
        "oldest = pointer.kept[-1].position",
        "oldest = pointer.kept[0].position",
        tests=CHECKPOINT,
    ),
    plant(
        "trimmed records are not archived",
        "domain/checkpoint_store.py",
        "            await self._put_verified(key, msgspec.msgpack.encode(some))\n",
        "",
        tests=CHECKPOINT,
    ),
    plant(
        "a damaged page is believed",
        "domain/checkpoint_store.py",
        "if digest(content) != name.digest:",
        "if False:",
        tests=CHECKPOINT,
    ),
    plant(
        "two states at one position are not compared",
        "domain/checkpoint_store.py",
        "    if pointed.digest != mine:\n",
        "    if False:\n",
        tests=CHECKPOINT,
    ),
    plant(
        "checkpoint objects go without a grace",
        "domain/checkpoint_store.py",
        "info.modified_ms < now_ms - 3_600_000",
        "info.modified_ms <= now_ms",
        tests=CHECKPOINT,
    ),
)

LOG: tuple[Plant, ...] = (
    plant(
        "no gap check",
        "domain/replica.py",
        "if page.records and page.start > self.state.position + 1:",
        "if False:",
        tests=("tests/domain/test_replica.py",),
        seeds=range(60),
    ),
    plant(
        "records are learnt at any position",
        "domain/replica.py",
        "if position != self.state.position + 1 or self.stopped is not None:",
        "if position <= self.state.position or self.stopped is not None:",
        tests=("tests/domain/test_replica.py",),
        seeds=range(20),
    ),
    plant(
        "a log that went back is followed",
        "domain/replica.py",
        "if page.end < after:",
        "if False:",
        tests=("tests/domain/test_replica.py",),
    ),
    plant(
        "empty answer without proof",
        "domain/replica.py",
        "while not self.is_proved(arrived_s=arrived_s):",
        "while False:",
        seeds=range(20),
    ),
    plant(
        "a proof counts from its end",
        "domain/replica.py",
        "                self._proved_s = max(self._proved_s, began_s)\n                return",
        "                self._proved_s = self._clock.monotonic_s()\n                return",
        seeds=range(200),
    ),
    plant(
        "two appends in flight",
        "domain/replica.py",
        "            await self._append(await self._queue.next_record())\n",
        "            self._tasks.spawn(self._append(await self._queue.next_record()), name='')\n",
        seeds=range(20),
    ),
    plant(
        "an unknown outcome is a failure",
        "domain/replica.py",
        "            except (Unavailable, OutcomeUnknown):\n",
        "            except OutcomeUnknown as error:\n"
        "                for waiter in self._queue._pending.pop(own.number):\n"
        "                    if not waiter.done():\n"
        "                        waiter.set_exception(Unavailable(str(error)))\n"
        "                        waiter.exception()\n"
        "                return\n"
        "            except Unavailable:\n",
        seeds=range(60),
    ),
    plant(
        "a repeat under a new stamp",
        "domain/replica.py",
        "                failures += 1\n"
        "                await asyncio.sleep(self._options.retry_backoff.grown_s(failures))\n"
        "                await self._look()\n",
        "                from lakelog.domain.envelope import Stamp, encode_record\n"
        "                queue = self._queue\n"
        "                queue._number += 1\n"
        "                queue._pending[queue._number] = queue._pending.pop(own.number)\n"
        "                assert queue._incarnation is not None\n"
        "                stamp = Stamp(queue._incarnation, queue._number)\n"
        "                record = DomainRecord(queue._name, stamp, LEVEL_MAX, own.record.events)\n"
        "                own = OwnRecord(queue._number, record, encode_record(record))\n"
        "                failures += 1\n"
        "                await asyncio.sleep(self._options.retry_backoff.grown_s(failures))\n"
        "                await self._look()\n",
        seeds=range(60),
    ),
    plant(
        "reload without rebirth",
        "domain/replica.py",
        "                incarnation = await win_incarnation(self._store, self.identity.writer)\n",
        "                key = keys.incarnation(self.identity.writer)\n"
        "                found = await self._store.get(key)\n"
        "                incarnation = int(found.value) if found else 0\n"
        "                writer = self.identity.writer\n"
        "                incarnation = incarnation or await win_incarnation(self._store, writer)\n",
        seeds=range(60),
    ),
)

WRITTEN = ("tests/domain/test_machine_writes.py",)
PLACED = ("tests/log/test_placed.py", "tests/log/test_writes.py")

WRITES: tuple[Plant, ...] = (
    plant(
        "a version counts twice",
        "domain/machine.py",
        "event.version <= last.version:",
        "event.version < last.version:",
        tests=WRITTEN,
    ),
    plant(
        "a void object of a write is left out",
        "domain/machine.py",
        "    if min(times_ms) < state.horizon_ms:\n",
        "    if max(times_ms) < state.horizon_ms:\n",
        tests=WRITTEN,
    ),
    plant(
        "a refused write uses its version up",
        "domain/machine.py",
        "    unknown = _unknown(state, event)\n",
        "    state.writes[event.application] = LastWrite(event.version, max(times_ms))\n"
        "    unknown = _unknown(state, event)\n",
        tests=WRITTEN,
    ),
    plant(
        "a write before the upgrade counts",
        "domain/machine.py",
        "if state.level < WRITES_LEVEL:",
        "if state.level < 1:",
        tests=WRITTEN,
    ),
    plant(
        "an application younger than the Horizon is forgotten",
        "domain/machine.py",
        "cutoff_ms = min(event.cutoff_ms, state.horizon_ms)",
        "cutoff_ms = event.cutoff_ms",
        tests=WRITTEN,
    ),
    plant(
        "writes by the order in which they came",
        "domain/checkpoint.py",
        "for name, last in sorted(state.writes.items())",
        "for name, last in state.writes.items()",
        tests=WRITTEN,
    ),
    plant(
        "every record asks for the newest level",
        "domain/event_queue.py",
        "level = needed_level(queued.kind for queued in taken)",
        "level = LEVEL_MAX",
        tests=PLACED,
    ),
    plant(
        "a broker without Hello is taken to support everything",
        "log/writes.py",
        "supported.get(name, 0) < level",
        "supported.get(name, level) < level",
        tests=PLACED,
    ),
    plant(
        "an object's batches are not looked at",
        "log/placed.py",
        "    if header.last_offset_delta + 1 != count or header.record_count != count:\n",
        "    if False:\n",
        tests=PLACED,
    ),
)

PLANTS = MEANING + STATE + LOG + WRITES
