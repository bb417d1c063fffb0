"""One seed, one story: faults first, then heal and demand progress.

Swarm testing: a seed draws which faults exist at all and how often they come, how large the limits
are and how wrong the clocks, so that no mix is the usual one. Safety is checked all along by the
auditor, and in full at the end.
"""

import asyncio
import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.domain.test_checkpoint_model import checkpoint_of
from tests.sim.clients import Consumer, Producer, records_of
from tests.sim.log_cluster import LogBroker, LogCluster, Settings

from lakelog.domain.options import DomainOptions
from lakelog.log.options import LogOptions
from lakelog.log.values import ReadStatus
from lakelog.model.failures import Failure
from lakelog.model.ids import TopicId
from lakelog.testing.faulty import Faults
from lakelog.testing.invariants import (
    History,
    check_history,
    check_inventory,
    check_leaks,
    check_references,
    check_tiling,
)
from lakelog.testing.simulation import SimEntropy, SimLoop, simulate

TOPIC = TopicId(b"simulated topic.")
FAULTS_S = 8.0
PROGRESS_S = 30.0
STREAMS = (1, 2, 70)
SHORT_LIVED = 71
HARMS = ("kill", "stop", "outage", "jump", "trim", "drop")


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a seed."""

    seed: int
    violations: list[str]
    reached: set[str]
    trace: str
    history: History


@dataclass(slots=True)
class Story:
    """The cluster of a seed and what is going to happen to it."""

    cluster: LogCluster
    dice: SimEntropy
    happens: frozenset[str]
    violations: list[str] = field(default_factory=list)
    lives: int = 0

    def begin(self, number: int) -> LogBroker:
        """A broker starts, or starts again under its old number."""
        self.lives += 1
        broker = LogBroker(self.cluster, number, self.lives)
        self.cluster.brokers = [one for one in self.cluster.brokers if one.number != number]
        self.cluster.brokers.append(broker)
        broker.start()
        return broker


def run_seed(seed: int) -> Result:
    """Simulate one seed to its end."""
    made: list[Story] = []
    logging.getLogger("lakelog").setLevel(logging.CRITICAL + 1)

    async def main(loop: SimLoop) -> None:
        story = draw(loop)
        made.append(story)
        await tell(story)

    try:
        _, trace = simulate(main, seed=seed)
    except Exception:  # noqa: BLE001 - whatever escapes is a finding of this seed
        trace = ""
        made[0].violations.append(traceback.format_exc(limit=-3))
    story = made[0]
    cluster = story.cluster
    violations = [*cluster.auditor.violations, *story.violations, *cluster.journal.overlaps]
    violations += check_history(cluster.history)
    reached = cluster.reached | cluster.auditor.reached
    return Result(seed, violations, reached, trace, cluster.history)


def draw(loop: SimLoop) -> Story:
    dice = loop.dice("plan")
    brokers = dice.number(2, 4)
    often = 0.02 if dice.chance(0.5) else 0.1
    ttl_ms = dice.number(500, 6_000)
    settings = Settings(
        brokers=brokers,
        domain=DomainOptions(
            checkpoint_records=dice.pick((8, 16, 40)),
            checkpoints_kept=dice.pick((2, 3)),
            idle_read_s=0.3,
            retry_s=0.02,
            retry_max_s=0.3,
        ),
        log=LogOptions(
            linger_ms=dice.pick((1, 20, 100)),
            puts_max=dice.pick((1, 4)),
            put_retry_ms=20,
            put_retry_max_ms=200,
            put_give_up_ms=dice.pick((500, 5_000)),
            tail_cache_bytes=dice.pick((2_000, 1 << 20, 1 << 20)),
            read_cache_bytes=dice.pick((2_000, 1 << 20, 1 << 20)),
            read_ahead_bytes=dice.pick((0, 4096)),
            orphan_ttl_ms=ttl_ms,
            grace_ms=dice.number(200, 2_000),
            sweep_interval_ms=dice.number(400, 2_000),
        ),
        skews_ms=tuple(_skew_ms(dice) for _ in range(brokers)),
    )
    cluster = LogCluster(
        loop,
        settings,
        meta_faults=draw_faults(dice, often),
        object_faults=draw_faults(dice, often),
    )
    happens = frozenset(harm for harm in HARMS if dice.chance(0.5))
    return Story(cluster, dice, happens)


def _skew_ms(dice: SimEntropy) -> int:
    """Mostly small; sometimes a clock is hopeless."""
    if dice.chance(0.1):
        return dice.pick((-3_600_000, 3_600_000 * 3))
    return dice.number(-3_000, 3_000)


def draw_faults(dice: SimEntropy, often: float) -> Faults:
    def sometimes() -> float:
        return often * dice.between(0, 1) if dice.chance(0.5) else 0.0

    return Faults(
        latency_s=dice.pick((0.001, 0.01)),
        slow=sometimes(),
        unavailable=sometimes(),
        lost_request=sometimes(),
        lost_reply=sometimes(),
        late=sometimes(),
        late_s=dice.pick((0.3, 2.0)),
        timeout_s=dice.pick((0.1, 2.0)),
        watch_loss=sometimes() * 3,
    )


async def tell(story: Story) -> None:
    cluster = story.cluster
    for number in range(cluster.settings.brokers):
        story.begin(number)
    producers, consumers = _clients(story)
    try:
        async with asyncio.timeout(FAULTS_S + PROGRESS_S), asyncio.TaskGroup() as group:
            for chapter in (_harm, _watch, _heal):
                group.create_task(chapter(story), name=chapter.__name__)
            await _create(story)
            group.create_task(_administer(story), name="administer")
            for producer in producers:
                group.create_task(producer.run(FAULTS_S, pause_s=0.2), name=producer.name)
            for consumer in consumers:
                group.create_task(consumer.run(FAULTS_S + 3), name=consumer.name)
    except TimeoutError:
        waiting = [one.name for one in producers if one.in_flight()]
        story.violations.append(f"no progress after everything was healed: {waiting}")
    for consumer in consumers:
        story.violations += consumer.violations
    await _finish(story)


def _clients(story: Story) -> tuple[list[Producer], list[Consumer]]:
    cluster = story.cluster
    producers = []
    for number, stream in enumerate((*STREAMS, STREAMS[0])):
        producers.append(Producer(cluster, f"idempotent-{number}", stream, producer=1000 + number))
    producers.append(Producer(cluster, "plain-0", STREAMS[0], producer=-1))
    producers.append(Producer(cluster, "plain-1", STREAMS[2], producer=-1))
    if "drop" in story.happens:
        producers.append(Producer(cluster, "plain-2", SHORT_LIVED, producer=-1))
    consumers = [Consumer(cluster, f"consumer-{stream}", stream) for stream in STREAMS]
    return producers, consumers


async def _somewhere(story: Story, ask: Callable[[LogBroker], asyncio.Task[Any]]) -> None:
    """Have some broker do it, and if it is not known to be done, another one (or the same)."""
    while True:
        running = story.cluster.running()
        if running:
            asking = ask(story.dice.pick(running))
            await asyncio.wait([asking], timeout=3.0)
            if asking.done() and asking.exception() is None:
                return
            if asking.done() and not isinstance(asking.exception(), Failure):
                raise AssertionError(repr(asking.exception()))
        await asyncio.sleep(0.1)


async def _create(story: Story) -> None:
    streams = (*STREAMS, SHORT_LIVED)

    def ask(broker: LogBroker) -> "asyncio.Task[None]":
        return broker.spawn(broker.log.create_streams(TOPIC, first_partition=0, streams=streams))

    await _somewhere(story, ask)


async def _administer(story: Story) -> None:
    """Trims and drops, by whatever broker."""
    cluster, dice = story.cluster, story.dice
    while cluster.loop.time() < FAULTS_S:
        await asyncio.sleep(dice.waiting_s(1.5))
        if "trim" in story.happens:
            stream = dice.pick(STREAMS)
            _, head = cluster.auditor.heads().get(stream, (0, 0))
            offset = dice.number(0, head + 1)
            await _somewhere(story, partial(_trim, {stream: offset}))
            cluster.reached.add("a stream was trimmed")
        if "drop" in story.happens and dice.chance(0.2) and SHORT_LIVED in cluster.auditor.heads():
            await _somewhere(story, lambda b: b.spawn(b.log.drop_streams([SHORT_LIVED])))
            cluster.reached.add("a stream was dropped")


def _trim(offsets: dict[int, int], broker: LogBroker) -> asyncio.Task[Any]:
    return broker.spawn(broker.log.trim(offsets))


async def _harm(story: Story) -> None:
    """What happens to processes, clocks and links, until it is time to heal."""
    cluster, dice = story.cluster, story.dice
    harms = [
        harm
        for name, harm in (("kill", _kill), ("stop", _stop), ("outage", _cut), ("jump", _jump))
        if name in story.happens
    ]
    while harms:
        await asyncio.sleep(dice.waiting_s(1.2))
        if cluster.loop.time() >= FAULTS_S or not cluster.brokers:
            return
        await dice.pick(harms)(story, dice.pick(cluster.brokers))


async def _kill(story: Story, broker: LogBroker) -> None:
    story.cluster.loop.kill_process(broker.process)
    story.cluster.loop.note("kill", broker.name)
    story.cluster.reached.add("a broker was killed")
    await asyncio.sleep(story.dice.between(0, 2))
    story.begin(broker.number)


async def _stop(story: Story, broker: LogBroker) -> None:
    """SIGSTOP and SIGCONT; now and then its supervisor has started another one meanwhile."""
    loop = story.cluster.loop
    loop.stop_process(broker.process)
    loop.note("stop", broker.name)
    pause_s = story.dice.pick((0.1, 1.0, 4.0, 8.0))
    await asyncio.sleep(pause_s / 2)
    replaced = story.dice.chance(0.3)
    if replaced:
        story.begin(broker.number)
    await asyncio.sleep(pause_s / 2)
    loop.continue_process(broker.process)
    loop.note("continue", broker.name)
    story.cluster.reached.add("a broker was stopped and continued")
    if replaced:
        # Its session ended long ago; it takes a moment to notice, and may do anything meanwhile.
        await asyncio.sleep(story.dice.between(0, 2))
        loop.kill_process(broker.process)
        story.cluster.reached.add("a broker was replaced while it was stopped")


async def _cut(story: Story, _: LogBroker) -> None:
    cluster = story.cluster
    faults = story.dice.pick((cluster.meta_faults, cluster.object_faults))
    faults.outage_until_s = cluster.loop.time() + story.dice.pick((0.3, 2.0, 5.0))
    cluster.loop.note("outage", faults.outage_until_s)
    cluster.reached.add("a store was out of reach")


async def _jump(story: Story, broker: LogBroker) -> None:
    broker.clock.skew_ms += story.dice.pick((-3_600_000, -5_000, 5_000, 3_600_000))
    story.cluster.reached.add("a clock jumped")


async def _watch(story: Story) -> None:
    """A broker that ended by itself is started again by its supervisor, but must have a reason.

    So is one whose name another process took over.
    """
    cluster = story.cluster
    while cluster.loop.time() < FAULTS_S + 12:
        await asyncio.sleep(0.25)
        for broker in list(cluster.brokers):
            fenced = "another process" in (broker.replica.stopped or "")
            if broker.process.dead or (broker.died is None and not fenced):
                continue
            if broker.died is not None and not isinstance(broker.died, Failure):
                story.violations.append(f"{broker.name} died: {broker.died!r}")
            cluster.reached.add("a broker ended by itself")
            cluster.loop.kill_process(broker.process)
            story.begin(broker.number)


async def _heal(story: Story) -> None:
    await asyncio.sleep(FAULTS_S - story.cluster.loop.time())
    story.cluster.meta_faults.heal()
    story.cluster.object_faults.heal()
    story.cluster.loop.note("heal")


async def _finish(story: Story) -> None:
    """All is well again: everybody serves, everything acknowledged is there, garbage goes."""
    cluster = story.cluster
    options = cluster.settings.log
    passes_s = (options.grace_ms + 3 * options.sweep_interval_ms) / 1000
    horizon_ms = cluster.auditor.state.horizon_ms
    await asyncio.sleep(6.0 + 2 * passes_s)
    for broker in cluster.brokers:
        if broker.replica.stopped or not broker.ready:
            reason = broker.replica.stopped or broker.died
            story.violations.append(f"{broker.name} does not serve: {reason!r}")
    inventory = await cluster.inventory()
    state = cluster.auditor.state
    story.violations += check_tiling(state)
    story.violations += check_references(state)
    story.violations += check_inventory(state, inventory)
    if _anyone_sweeps(story):
        story.violations += check_leaks(state, inventory, horizon_ms=horizon_ms)
    await _read_all(story, story.begin(0))


def _anyone_sweeps(story: Story) -> bool:
    """Rule 20: a broker whose clock is hopeless does not clean up."""
    return any(
        abs(broker.clock.skew_ms) <= story.cluster.settings.log.clock_skew_max_ms
        for broker in story.cluster.brokers
    )


async def _read_all(story: Story, fresh: LogBroker) -> None:
    """A fresh broker reads every stream from end to end, into the history."""
    cluster = story.cluster
    for _ in range(200):
        if fresh.ready:
            break
        await asyncio.sleep(0.1)
    else:
        story.violations.append(f"a fresh broker does not serve: {fresh.died!r}")
        return
    await fresh.replica.prove(arrived_s=fresh.clock.monotonic_s())
    if checkpoint_of(fresh.replica.state) != checkpoint_of(cluster.auditor.state):
        story.violations.append("R13 a fresh broker's state is not what the log means")
    for stream, (log_start, head) in sorted(cluster.auditor.heads().items()):
        records: list[tuple[int, str]] = []
        offset = log_start
        while offset < head:
            got, _ = await fresh.fetch(stream, offset)
            some = [one for one in records_of(got) if one[0] >= offset]
            if got.status is not ReadStatus.OK or not some:
                story.violations.append(f"L1 {stream}/{offset}: {got.status.name}, {len(some)}")
                break
            records += some
            offset = some[-1][0] + 1
        cluster.history.final[stream] = tuple(records)
        cluster.history.log_starts[stream] = log_start
