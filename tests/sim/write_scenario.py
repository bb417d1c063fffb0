"""The simulated log with jobs that put WAL objects themselves and commit them (RFC 0004).

The story is that of `scenario`. A job has one driver: it writes version after version, each with
the same rows however often it must, sometimes with the objects that it has, sometimes, as if it had
died and come back, with new ones. Whatever happens to brokers, stores and clocks, a version stands
in the log once, whole, and after the one before.
"""

import asyncio
import logging
import traceback
from dataclasses import dataclass, field

from tests.log.placing import RULE
from tests.sim import scenario
from tests.sim.clients import CLIENT_TIMEOUT_S, Client, make_batch
from tests.sim.log_cluster import REQUEST_S, LogBroker, LogCluster
from tests.sim.scenario import FAULTS_S, SHORT_LIVED, STREAMS, Result, Story
from tests.simulated_cluster import SimulatedProcess

from lakelog.domain.commit_event import WRITES_LEVEL, Commit, Write
from lakelog.domain.envelope import DomainRecord, Stamp, decode_record, encode_record
from lakelog.domain.events import Genesis
from lakelog.domain.machine import apply_record
from lakelog.domain.state import LEVEL_MAX, DomainState, WriteVerdict, Written
from lakelog.log.buffer import ObjectBuffer, seal
from lakelog.log.writes import IdempotentWrite, WrittenDomain
from lakelog.meta import keys
from lakelog.model.failures import Failure, OutcomeUnknown, Refused, Unavailable
from lakelog.model.ids import DomainId
from lakelog.records.batch_rows import rows_of
from lakelog.testing.faulty import (
    Faults,
    Mutation,
)
from lakelog.testing.invariants import OperationOutcome, Sent, check_history
from lakelog.testing.simulation import SimLoop, simulate
from lakelog.wal.layout import TOKEN_BYTES, make_wal_id, object_key

LAST_S = FAULTS_S + 11
"""By then every job has come to its end: brokers that were stopped go on, and nobody reads yet."""

MUST_REACH_WRITES = {
    "a commit was repeated with its objects",
    "a commit was repeated with new objects",
    "a domain was upgraded",
    "a write was refused to its driver",
    "a write was ALREADY",
    "a write was TAKEN",
    "a write was UNKNOWN_STREAM",
    "a write was VOID",
    "the outcome of a commit was unknown",
}


@dataclass(slots=True)
class Ledger:
    """What the log says of writes, folded once more beside the auditor."""

    cluster: LogCluster
    state: DomainState = field(default_factory=DomainState)
    taken: dict[tuple[str, int], int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def hear(self, mutation: Mutation) -> None:
        """Judge the Writes of a record that landed."""
        if mutation.kind != "append":
            return
        record = decode_record(mutation.data, level_max=LEVEL_MAX)
        level = self.state.level
        applied = apply_record(self.state, record)
        if level and self.state.level > level:
            self.cluster.reached.add("a domain was upgraded")
        for event, outcome in zip(record.events, applied.outcomes, strict=True):
            if isinstance(event, Write) and isinstance(outcome, Written):
                self._judge(event, outcome)

    def _judge(self, event: Write, outcome: Written) -> None:
        self.cluster.reached.add(f"a write was {outcome.verdict.name}")
        name = f"{event.application}/{event.version}"
        if outcome.verdict is not WriteVerdict.TAKEN:
            if outcome.commits:
                self.violations.append(f"X2 {name}: refused, and something was taken in")
            return
        if (event.application, event.version) in self.taken:
            self.violations.append(f"X1 {name}: twice")
        self.taken[event.application, event.version] = self.state.position
        for commit, committed in zip(event.commits, outcome.commits, strict=True):
            if len(commit.stream) != len(committed.verdicts) or committed.verdicts.any():
                self.violations.append(f"X2 {name}: not all of it was taken in")


class Job(Client):
    """One driver and its tasks, which are quick: every task puts one object."""

    def __init__(self, cluster: LogCluster, name: str, streams: tuple[int, ...]) -> None:
        super().__init__(cluster, name)
        self.streams = streams
        self.acknowledged: list[int] = []
        self.is_done = False
        driver = SimulatedProcess(cluster, name, skew_ms=self.dice.number(-3_000, 3_000))
        self.clock = driver.clock
        self.objects = driver.object_store(cluster.object_faults)

    async def run(self) -> None:
        """Write versions until it is time to heal, and see the last one through."""
        version = 0
        while self.now_s() < FAULTS_S:
            rows = {
                stream: [f"{stream}/{self.name}/{version}.{at}" for at in range(3)]
                for stream in self.streams
            }
            is_known = await self._see_through(version, rows)
            for stream, values in rows.items():
                self.cluster.history.sent.append(_sent(self, stream, version, values))
            if not is_known:
                break
            self.acknowledged.append(version)
            version += 1
            await asyncio.sleep(self.dice.waiting_s(0.3))
        self.is_done = True

    async def _see_through(self, version: int, rows: dict[int, list[str]]) -> bool:
        """Whether the version is there; False when its topic is gone."""
        placed: list[Commit] | None = None
        repeats = 2 if self.dice.chance(0.2) else 1  # a checkpoint that was lost
        while repeats:
            broker = await self.broker()
            if placed is None:
                placed = await self._placed(broker, rows)
                continue
            ending = await self._commit(broker, version, placed)
            if ending is OperationOutcome.OK:
                repeats -= 1
                placed = None
                continue
            if not set(self.streams) <= self.cluster.auditor.heads().keys():
                return False
            self.leave()
            if ending is OperationOutcome.FAILED or self.dice.chance(0.5):
                placed = None
                self.cluster.reached.add("a commit was repeated with new objects")
            else:
                self.cluster.reached.add("a commit was repeated with its objects")
            await asyncio.sleep(self.dice.waiting_s(0.1))
        return True

    async def _placed(self, broker: LogBroker, rows: dict[int, list[str]]) -> list[Commit] | None:
        """The Commits of two objects in the store, or None when that did not work."""
        earliest_ms = broker.log.writes.place("there").id_time_ms_min
        commits = []
        for part in (slice(0, 2), slice(2, 3)):
            now_ms = max(self.clock.now_ms(), earliest_ms)
            gathered = ObjectBuffer()
            for stream, values in rows.items():
                batch = make_batch(values[part], now_ms=now_ms, producer=-1, sequence=-1)
                gathered.add(rows_of([stream], [batch]))
            sealed = seal(
                gathered,
                wal_id=make_wal_id(now_ms, self.dice.entropy.token(TOKEN_BYTES)),
                domain=DomainId(0),
                zone="there",
                created_ms=now_ms,
            )
            key = object_key("there", DomainId(0), sealed.commit.wal_id)
            try:
                await self.objects.put(key, (sealed.data,))
            except (Unavailable, OutcomeUnknown):
                await asyncio.sleep(0.05)
                return None  # what is there by now is an orphan
            commits.append(sealed.commit)
        return commits

    async def _commit(
        self, broker: LogBroker, version: int, commits: list[Commit]
    ) -> OperationOutcome:
        rules = dict.fromkeys(self.streams, RULE)
        wanted = IdempotentWrite(self.name, version, {0: commits}, rules)
        asking = broker.spawn(_written(broker, wanted))
        await asyncio.wait([asking], timeout=CLIENT_TIMEOUT_S)
        error = asking.exception() if asking.done() else OutcomeUnknown("no answer")
        if error is None:
            return OperationOutcome.OK
        if isinstance(error, Refused):
            self.cluster.reached.add("a write was refused to its driver")
            return OperationOutcome.FAILED
        if not isinstance(error, Failure):
            raise error
        if isinstance(error, OutcomeUnknown):
            self.cluster.reached.add("the outcome of a commit was unknown")
        return OperationOutcome.UNKNOWN


async def _written(broker: LogBroker, wanted: IdempotentWrite) -> tuple[WrittenDomain, ...]:
    return await broker.log.write(wanted, deadline_s=broker.clock.monotonic_s() + REQUEST_S)


def _sent(job: Job, stream: int, version: int, values: list[str]) -> Sent:
    """Where it stands is the ledger's to know; that it stands there once, the history's."""
    return Sent(
        client=job.name,
        stream=stream,
        number=version,
        values=tuple(values),
        invoked_s=0.0,
        returned_s=job.now_s(),
        ending=OperationOutcome.UNKNOWN,
    )


def run_write_seed(seed: int) -> Result:
    """Simulate one seed to its end."""
    made: list[tuple[Story, Ledger]] = []
    logging.getLogger("lakelog").setLevel(logging.CRITICAL + 1)

    async def main(loop: SimLoop) -> None:
        story = scenario.draw(loop)
        ledger = Ledger(story.cluster)
        made.append((story, ledger))
        await _tell(story, ledger)

    try:
        _, trace = simulate(main, seed=seed)
    except Exception:  # noqa: BLE001 - whatever escapes is a finding of this seed
        trace = ""
        made[0][0].violations.append(traceback.format_exc(limit=-3))
    story, ledger = made[0]
    cluster = story.cluster
    violations = [*cluster.auditor.violations, *story.violations, *cluster.journal.overlaps]
    violations += ledger.violations
    violations += check_history(cluster.history)
    return Result(
        seed, violations, cluster.reached | cluster.auditor.reached, trace, cluster.history
    )


async def _tell(story: Story, ledger: Ledger) -> None:
    cluster = story.cluster
    cluster.journal.listeners.append(ledger.hear)
    if cluster.loop.dice("level").chance(0.5):
        await _found_at_level_1(cluster)
    jobs = [Job(cluster, "job-0", STREAMS[1:]), Job(cluster, "job-1", (STREAMS[0],))]
    if "drop" in story.happens:
        jobs.append(Job(cluster, "job-2", (STREAMS[1], SHORT_LIVED)))
    async with asyncio.TaskGroup() as group:
        group.create_task(_work(story, jobs), name="jobs")
        await scenario.tell(story)
    for job in jobs:
        for version in job.acknowledged:
            if (job.name, version) not in ledger.taken:
                story.violations.append(f"X1 {job.name}/{version}: acknowledged and not there")
        places = [ledger.taken.get((job.name, version), 0) for version in job.acknowledged]
        if places != sorted(places):
            story.violations.append(f"X1 {job.name}: out of order: {places}")


async def _found_at_level_1(cluster: LogCluster) -> None:
    """The log is of a cluster that is older than writes."""
    founder = SimulatedProcess(cluster, "founder")
    metadata = founder.metadata_store(Faults(), cluster.loop.dice("founder"))
    genesis = Genesis(cluster.cluster_id, 0, WRITES_LEVEL - 1)
    record = DomainRecord("genesis", Stamp(0, 0), WRITES_LEVEL - 1, (genesis,))
    await metadata.log(keys.domain_log(0)).append(encode_record(record))


async def _work(story: Story, jobs: list[Job]) -> None:
    try:
        async with asyncio.timeout(LAST_S), asyncio.TaskGroup() as group:
            while not set(STREAMS) <= story.cluster.auditor.heads().keys():
                await asyncio.sleep(0.1)
            for job in jobs:
                group.create_task(job.run(), name=job.name)
    except TimeoutError:
        waiting = [job.name for job in jobs if not job.is_done]
        story.violations.append(f"no progress after everything was healed: {waiting}")
