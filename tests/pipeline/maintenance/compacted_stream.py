"""A compacted stream of data files, and what must be true of it whatever was cleaned when."""

from dataclasses import dataclass, field, replace
from itertools import pairwise

from tests.log.tables import table_facts
from tests.pipeline.files.table_files import (
    STREAM,
    TOPIC_ID,
    consumed,
    one_by_one,
    put_file,
    rewriting,
)
from tests.records.table_cases import Row, rows_of

from lakelog.catalog.port import DataFileView
from lakelog.clock import SystemClock
from lakelog.index.entries import Entry
from lakelog.index.ports import StreamView
from lakelog.model.ids import TopicId
from lakelog.objects.memory import MemoryObjectStore
from lakelog.objects.port import ObjectStore
from lakelog.pipeline.files.file_task import FileFailure, TableInputs, TablePiece
from lakelog.pipeline.files.run_task import run_task
from lakelog.pipeline.maintenance.key_scan import ScanAnswer, Scanner, scan
from lakelog.pipeline.maintenance.log_compaction import (
    CleaningGroup,
    CleaningPlan,
    CleaningRules,
    RetainedRows,
    after_pass,
    groups_of,
    plan_pass,
)
from lakelog.pipeline.planning.small_files import replacement
from lakelog.pipeline.saga.task_record import Cleaned
from lakelog.pipeline.saga.values import PlannedTask, StreamName, TaskTarget
from lakelog.records.build import Record
from lakelog.streams.objects import FileKind, FileName

NAME = StreamName(STREAM, TopicId(TOPIC_ID), "t", 3)
RETENTION_MS = 1600


@dataclass
class CompactedStream:
    """The stream: its index, its table, its files, and every row that was ever in it."""

    objects: ObjectStore = field(default_factory=lambda: MemoryObjectStore(SystemClock()))
    folder: str = "compaction"
    scanner: Scanner | None = None
    """Who scans; this process where there is none."""
    entries: list[Entry] = field(default_factory=list)
    table: dict[str, DataFileView] = field(default_factory=dict)
    sent: dict[int, Row] = field(default_factory=dict)
    cleaned: Cleaned = field(default_factory=Cleaned)
    passes: list[tuple[int, int]] = field(default_factory=list)
    """Whole passes as they were: end and time."""
    head: int = 0
    now_ms: int = 1_000_000
    numbers: int = 0
    rules: CleaningRules = field(
        default_factory=lambda: CleaningRules(0.0, delete_retention_ms=RETENTION_MS)
    )

    @property
    def view(self) -> StreamView:
        first = self.entries[0].start if self.entries else self.head
        return StreamView(STREAM, first, first, tuple(self.entries))

    async def append(self, records: list[tuple[bytes | None, bytes | None]], *, gap: int) -> None:
        """A new file at the end, with offsets behind its rows that hold nothing."""
        start = self.head
        stamped = [
            (start + at, Record(key, value, self.now_ms)) for at, (key, value) in enumerate(records)
        ]
        batches = one_by_one(stamped)
        end = start + len(records) + gap
        piece = await put_file(
            self.objects, batches, start=start, end=end, key=f"{self.folder}/f{start}.parquet"
        )
        self.sent |= {row.offset: row for row in rows_of(batches)}
        self.head = end
        self._name(piece, row_count=len(records), first=start, last=start + len(records) - 1)
        name = FileName(FileKind.PARQUET, piece.key)
        self.entries.append(Entry(start, end, name, 0, piece.size_bytes, self.now_ms, domain=0))

    def trim(self, entries: int) -> None:
        """The log lets go of its first entries, and the table of their files."""
        for one in self.entries[:entries]:
            self.table.pop(one.key, None)
        del self.entries[:entries]

    def plan(self) -> CleaningPlan | None:
        return plan_pass(NAME, self.view, self.cleaned, rules=self.rules, now_ms=self.now_ms)

    async def scanned(self, plan: CleaningPlan) -> ScanAnswer:
        """Which rows stay."""
        if self.scanner is None:
            return await scan(self.objects, plan)
        (answer,) = await self.scanner.scan([plan])
        return answer

    async def clean(self, *, groups_max: int = 1000, bytes_target: int = 1 << 20) -> bool:
        """A pass that is interrupted after so many groups; whether it was whole."""
        plan = self.plan()
        if plan is None:
            return False
        answer = await self.scanned(plan)
        assert not isinstance(answer, FileFailure), answer
        retained: dict[str, RetainedRows] = {one.key: one for one in answer}
        groups = groups_of(plan, retained, bytes_target=bytes_target)
        for group in groups[:groups_max]:
            await self.replace(group.entries, TaskTarget.CLEAN, group)
        if len(groups) > groups_max:
            return False
        self.cleaned = after_pass(self.cleaned, plan, rules=self.rules, now_ms=self.now_ms)
        self.passes.append((plan.end, self.now_ms))
        return True

    async def replace(
        self,
        entries: tuple[Entry, ...],
        target: TaskTarget,
        group: CleaningGroup | None = None,
    ) -> None:
        """The task of these entries, from its plan to its end."""
        assert group is None or group.is_in(self.view)
        files = sorted(self.table.values(), key=lambda one: one.offset_first)
        planned = replacement(NAME, entries, files, target=target, now_ms=self.now_ms)
        assert isinstance(planned, PlannedTask), planned
        self.numbers += 1
        pieces = [
            TablePiece(one.key, one.byte_length, one.start, one.end, one.key in self.table)
            for one in entries
        ]
        key = f"{self.folder}/r{self.numbers}.parquet"
        kept = None if group is None else group.kept_offsets
        inputs = TableInputs(tuple(pieces), kept)
        task = replace(rewriting(pieces, start=planned.start), key=key, inputs=inputs)
        facts = table_facts(await run_task(self.objects, task))
        for one in planned.inputs:
            del self.table[one]
        (offsets,) = [one for one in facts.columns if one.path == "offset"]
        piece = TablePiece(key, facts.size_bytes, entries[0].start, entries[-1].end, True)
        if offsets.lower is not None and offsets.upper is not None:
            self._name(piece, row_count=facts.row_count, first=offsets.lower, last=offsets.upper)
        place = self.entries.index(entries[0])
        name = FileName(FileKind.PARQUET, key)
        made = Entry(
            piece.start, piece.end, name, 0, facts.size_bytes, facts.max_timestamp_ms, domain=0
        )
        self.entries[place : place + len(entries)] = [made]

    def _name(self, piece: TablePiece, *, row_count: int, first: int, last: int) -> None:
        self.table[piece.key] = DataFileView(
            piece.key, 3, first, last + 1, row_count, piece.size_bytes
        )

    async def rows(self) -> list[Row]:
        """All that a consumer reads from the start."""
        found = []
        for one in self.entries:
            piece = TablePiece(one.key, one.byte_length, one.start, one.end, True)
            found += await consumed(self.objects, piece)
        return found

    async def check(self) -> None:
        """What must be true at any time."""
        assert all(before.end == after.start for before, after in pairwise(self.entries))
        rows = await self.rows()
        assert [self.sent[row.offset] for row in rows] == rows
        here = {row.offset for row in rows}
        assert len(here) == len(rows)
        log = [row for offset, row in sorted(self.sent.items()) if offset >= self.view.first_start]
        assert here >= {row.offset for row in log if row.key is None}
        latest = {row.key: row for row in log if row.key is not None}
        read = {row.key: row for row in rows if row.key is not None}
        for key, row in latest.items():
            if row.value is not None or row.offset in here:
                assert read[key] == row
            else:
                assert key not in read, "a deleted key came back"
                self._check_horizon(row)
        if self.passes:
            self._check_clean(rows)

    def _check_horizon(self, tombstone: Row) -> None:
        passed_ms = [at_ms for end, at_ms in self.passes if end > tombstone.offset]
        assert passed_ms, "a tombstone went before a whole pass"
        assert min(passed_ms) + RETENTION_MS <= self.now_ms, "a tombstone went too soon"

    def _check_clean(self, rows: list[Row]) -> None:
        keys = [row.key for row in rows if row.key is not None and row.offset < self.passes[-1][0]]
        assert len(set(keys)) == len(keys), "a pass left a record that a later one supersedes"
