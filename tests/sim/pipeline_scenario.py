"""The simulated log with pipelines on it: what clients see is the same, and tables are exact.

The story is that of `scenario`, with two pipelines over the same faulty stores and a catalog that
fails as well. They are killed, stopped past their leases and started again; once all is healed they
have to come to rest, with every record of every stream in its table once.
"""

import asyncio
import logging
import traceback
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.parquet as pq
from tests.sim import scenario
from tests.sim.log_cluster import LogCluster
from tests.sim.pipeline_worker import Worker
from tests.sim.scenario import FAULTS_S, SHORT_LIVED, STREAMS, TOPIC, Result, Story

from lakelog.catalog.port import TableName
from lakelog.index.ports import IndexedTopic
from lakelog.pipeline.options import PipelineOptions
from lakelog.pipeline.planning.small_files import RewriteOptions
from lakelog.pipeline.planning.wal_ranges import PlanOptions
from lakelog.pipeline.saga.task_record import TASKS, decode_record, is_open
from lakelog.streams.objects import WalName
from lakelog.testing.faulty import Faults
from lakelog.testing.invariants import check_history
from lakelog.testing.memory_tables import MemoryTables
from lakelog.testing.simulation import SimEntropy, SimLoop, simulate

REST_S = FAULTS_S + 10
"""Until then pipelines run; a while before, nothing is left to do."""

NAME = TableName("lakelog", "simulated")

MUST_REACH_PIPELINE = {
    "a pipeline was killed",
    "a pipeline was stopped past its lease",
    "a record was forgotten",
    "a round met an obstacle",
    "a stream was dropped",
    "a stream was trimmed",
    "a swap was refused",
    "a task came to its end",
    "a task was taken over",
    "files were replaced",
    "the catalog was out of reach",
}


@dataclass(slots=True)
class Crew:
    """The pipelines of a story and what they share."""

    story: Story
    dice: SimEntropy
    tables: MemoryTables
    faults: Faults
    options: PipelineOptions
    workers: list[Worker] = field(default_factory=list)
    lives: int = 0

    def begin(self) -> Worker:
        """Another pipeline starts."""
        self.lives += 1
        name = f"pipeline-{self.lives}"
        topics = self.topics
        cluster = self.story.cluster
        worker = Worker(cluster, name, self.tables, self.faults, self.options, topics)
        self.workers.append(worker)
        worker.start()
        return worker

    def topics(self) -> list[IndexedTopic]:
        heads = self.story.cluster.auditor.heads()
        streams = (*STREAMS, SHORT_LIVED)
        if not set(STREAMS) <= heads.keys():
            return []
        return [
            IndexedTopic(
                name=NAME.table,
                topic_id=TOPIC,
                streams=streams if SHORT_LIVED in heads else streams[:-1],
                has_table=True,
                freshness_ms=self.options.plan.freshness_ms,
                message_bytes_max=1_048_588,
                table_retention_ms=-1,
                is_compacted=False,
                delete_retention_ms=0,
                min_compaction_lag_ms=0,
                max_compaction_lag_ms=0,
                dirty_ratio_min=1.0,
            )
        ]


def run_pipeline_seed(seed: int) -> Result:
    """Simulate one seed to its end."""
    made: list[Crew] = []
    logging.getLogger("lakelog").setLevel(logging.CRITICAL + 1)

    async def main(loop: SimLoop) -> None:
        crew = _draw(loop)
        made.append(crew)
        await _tell(crew)

    try:
        _, trace = simulate(main, seed=seed)
    except Exception:  # noqa: BLE001 - whatever escapes is a finding of this seed
        trace = ""
        made[0].story.violations.append(traceback.format_exc(limit=-3))
    story = made[0].story
    cluster = story.cluster
    violations = [*cluster.auditor.violations, *story.violations, *cluster.journal.overlaps]
    violations += check_history(cluster.history)
    return Result(
        seed, violations, cluster.reached | cluster.auditor.reached, trace, cluster.history
    )


def _draw(loop: SimLoop) -> Crew:
    story = scenario.draw(loop)
    settings = story.cluster.settings
    story.cluster.settings = replace(settings, log=replace(settings.log, table_threads=0))
    dice = loop.dice("crew")
    often = dice.pick((0.0, 0.03, 0.1))
    plan = PlanOptions(freshness_ms=dice.pick((0, 300, 1500)), entries_due=dice.pick((3, 1000)))
    options = PipelineOptions(
        domains=1,
        plan=plan,
        lease_ms=dice.pick((600, 2_000)),
        job_s=5.0,
        records_s=2.0,
        index_s=2.5,
        table_s=2.5,
        retry_ms=50,
        retry_ms_max=400,
        upkeep_ms=dice.pick((0, 400)),
        rewrite=RewriteOptions(files_min=dice.pick((3, 8))),
    )
    tables = MemoryTables(story.cluster.clock, snapshots_kept=dice.pick((1, 10)))
    return Crew(story, dice, tables, scenario.draw_faults(dice, often), options)


async def _tell(crew: Crew) -> None:
    story = crew.story
    async with asyncio.TaskGroup() as group:
        group.create_task(_work(crew), name="pipelines")
        await scenario.tell(story)
    await _check(crew)


async def _work(crew: Crew) -> None:
    """Two pipelines, and what happens to them; in the end they are quiet."""
    loop = crew.story.cluster.loop
    for _ in range(2):
        crew.begin()
    while loop.time() < FAULTS_S:
        await asyncio.sleep(crew.dice.waiting_s(1.0))
        if "kill" in crew.story.happens or "stop" in crew.story.happens:
            await _harm(crew, crew.dice.pick(crew.workers))
    crew.faults.heal()
    await asyncio.sleep(REST_S - loop.time())
    for worker in crew.workers:
        loop.kill_process(worker.process)
        if worker.died is not None:
            crew.story.violations.append(f"{worker.name} died: {worker.died!r}")
    last = [worker.reports[-1] for worker in crew.workers[-2:] if worker.reports]
    for report in last:
        if not report.is_idle or report.all_obstacles:
            crew.story.violations.append(f"V6 no rest: {report}")


async def _harm(crew: Crew, worker: Worker) -> None:
    cluster, dice = crew.story.cluster, crew.dice
    match dice.pick(("kill", "stop", "outage")):
        case "kill":
            cluster.loop.kill_process(worker.process)
            crew.workers.remove(worker)
            cluster.reached.add("a pipeline was killed")
            await asyncio.sleep(dice.between(0, 1))
            crew.begin()
        case "stop":
            cluster.loop.stop_process(worker.process)
            await asyncio.sleep(dice.pick((0.3, 1.0, 3.0)))
            cluster.loop.continue_process(worker.process)
            cluster.reached.add("a pipeline was stopped past its lease")
        case _:
            crew.faults.outage_until_s = cluster.loop.time() + dice.pick((0.3, 2.0))
            cluster.reached.add("the catalog was out of reach")


async def _check(crew: Crew) -> None:
    """C3, C5, V1 to V6: everything is in its table once, and nothing is left to do."""
    cluster, said = crew.story.cluster, crew.story.violations
    for value in await cluster.metadata.range(TASKS):
        record = decode_record(value.value)
        if is_open(record) or record.stream not in cluster.auditor.heads():
            said.append(f"V6 {record}")
    inventory = await cluster.inventory()
    table = await crew.tables.load(NAME)
    said += [
        f"V3 {key} is named and not there"
        for key in sorted(await crew.tables.reachable(NAME) - inventory.keys())
    ]
    for partition, stream in enumerate((*STREAMS, SHORT_LIVED)):
        if stream in cluster.auditor.heads():
            said += await _compare(crew, partition, stream)
            said += [f"C4 {stream} is in {name}" for name in _wal_names(cluster, stream)]
            log_start, head = cluster.auditor.heads()[stream]
            if log_start < head and (table is None or table.vector.get(partition) != head):
                said.append(f"V1 {stream} ends at {head}, its table: {table}")


async def _compare(crew: Crew, partition: int, stream: int) -> list[str]:
    cluster = crew.story.cluster
    rows: list[tuple[int, str]] = []
    for file in await crew.tables.files(NAME, partition=partition, start=0, end=1 << 62):
        content = pq.read_table(pa.BufferReader(await cluster.objects.get(file.key)))
        values = [value.decode() for value in content["value"].to_pylist()]
        rows += zip(content["offset"].to_pylist(), values, strict=True)
    found = []
    offsets = [offset for offset, _ in rows]
    if offsets != sorted(set(offsets)):
        found.append(f"C3 {stream}: offsets twice or out of order: {offsets}")
    final = dict(cluster.history.final[stream])
    table = dict(rows)
    start = cluster.history.log_starts[stream]
    if final != {offset: value for offset, value in table.items() if offset >= start}:
        missing = sorted(final.keys() ^ {one for one in table if one >= start})
        found.append(f"C3 {stream}: table and log differ from {start} on at {missing}")
    return found


def _wal_names(cluster: LogCluster, stream: int) -> list[WalName]:
    state = cluster.auditor.state
    rows = state.index.rows(state.streams, state.streams.row_of[stream])
    names = [state.objects.name(state.index.entry(int(row)).object_row) for row in rows]
    return [name for name in names if isinstance(name, WalName)]
