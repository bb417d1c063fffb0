"""One seed of the simulation of groups: brokers, members and their faults are drawn from it.

For a while everything goes wrong that the seed says; then all is healed, and every group must come
to rest soon: each partition with one live member (P2), and no rebalance any more (P5).
"""

import asyncio
import logging
import traceback
from dataclasses import dataclass

from tests.domain.test_checkpoint_model import checkpoint_of
from tests.sim.group_classic import ClassicMember
from tests.sim.group_clients import Client, Member, read_offsets
from tests.sim.group_cluster import GroupCluster, GroupSettings
from tests.sim.group_harms import Story, harm, heal, watch
from tests.sim.group_people import act, clear, dismiss_doubles, end, enter

from lakelog.coordinator.options import GroupOptions
from lakelog.domain.options import DomainOptions
from lakelog.groups.state import ClassicGroup, ClassicState, ConsumerGroup
from lakelog.testing.faulty import Faults
from lakelog.testing.group_history import check_group_history
from lakelog.testing.group_invariants import held
from lakelog.testing.simulation import SimEntropy, SimLoop, simulate

FAULTS_S = 40.0
LATE_S = 8.0
"""How long after the healing something that was lost before may still take effect."""
CALM_S = 3.0
"""How long a group has to look settled: between two steps of a rebalance it may look so, too."""
QUIET_S = 15.0
HARMS = ("kill", "stop", "cut", "jump", "drain", "lag", "mute")
CALM_HARMS = ("kill", "stop", "jump", "drain")


@dataclass(frozen=True, slots=True)
class GroupResult:
    """What became of a seed."""

    seed: int
    violations: list[str]
    reached: set[str]
    trace: str
    settled_s: float
    asked: int


def run_group_seed(seed: int) -> GroupResult:
    """Simulate one seed to its end."""
    made: list[Story] = []
    logging.getLogger("lakelog").setLevel(logging.CRITICAL + 1)

    async def main(loop: SimLoop) -> None:
        story = draw(loop)
        made.append(story)
        await tell(story)

    trace = ""
    try:
        _, trace = simulate(main, seed=seed)
    except Exception:  # noqa: BLE001 - whatever escapes is a finding of this seed
        made[0].cluster.violations.append(traceback.format_exc(limit=-4))
    cluster = made[0].cluster
    auditor, history = cluster.auditor, cluster.history
    violations = [*auditor.violations, *cluster.violations, *cluster.journal.overlaps]
    violations += check_group_history(history, auditor.log_view)
    asked = len(history.beaten) + len(history.committed) + len(history.told) + len(history.read)
    reached = cluster.reached | auditor.reached
    return GroupResult(seed, violations, reached, trace, made[0].settled_s, asked)


def draw(loop: SimLoop) -> Story:
    """What the seed says."""
    dice = loop.dice("plan")
    brokers = dice.number(2, 4)
    is_calm = dice.chance(0.35)
    often = 0.02 if dice.chance(0.5) else 0.08
    settings = GroupSettings(
        brokers=brokers,
        domains=dice.pick((1, 1, 2)),
        domain=DomainOptions(
            checkpoint_records=dice.pick((8, 20, 60)),
            checkpoints_kept=dice.pick((2, 3)),
            idle_read_s=dice.pick((0.3, 1.0)),
            retry_s=0.02,
            retry_max_s=0.3,
        ),
        options=GroupOptions(
            initial_rebalance_delay_ms=dice.pick((0, 300, 2_000)),
            consumer_session_timeout_ms=dice.number(6_000, 9_000),
            consumer_heartbeat_interval_ms=dice.pick((400, 1_500)),
            assignment_interval_ms=dice.pick((100, 1_000)),
            offsets_retention_ms=3_600_000,
            offsets_retention_check_ms=7_000,
            new_member_join_timeout_ms=15_000,
            patterns_refresh_ms=5_000,
            sync_part_bytes_max=dice.pick((700, 512 << 10)),
        ),
        skews_ms=tuple(dice.number(-5 * 3_600_000, 5 * 3_600_000) for _ in range(brokers)),
        session_ms=dice.number(6_000, 9_000),
        rebalance_ms=dice.number(3_000, 9_000),
        client_timeout_s=dice.pick((0.8, 2.0)),
        is_calm=is_calm,
    )
    quiet = Faults(latency_s=dice.pick((0.001, 0.005)))
    cluster = GroupCluster(
        loop,
        settings,
        meta_faults=quiet if is_calm else draw_faults(dice, often),
        object_faults=quiet if is_calm else draw_faults(dice, often),
    )
    cluster.loses_replies = 0.0 if is_calm else dice.pick((0.0, 0.01, 0.05))
    cluster.topics.put("t0", dice.number(2, 7))
    cluster.topics.put("t1", dice.number(1, 5))
    harms = CALM_HARMS if is_calm else HARMS
    story = Story(cluster, dice, frozenset(one for one in harms if dice.chance(0.5)))
    cluster.auditor.on_expired.append(story.judge_expiry)
    cluster.auditor.on_born.append(story.judge_birth)
    return story


def draw_faults(dice: SimEntropy, often: float) -> Faults:
    """How bad a store is."""

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
    """From the first broker to the last look."""
    cluster = story.cluster
    for number in range(cluster.settings.brokers):
        story.begin(number)
    reader = Client(cluster, "reader")
    watching = asyncio.create_task(watch(story))
    async with asyncio.TaskGroup() as group:
        group.create_task(harm(story, FAULTS_S))
        group.create_task(_populate(story))
        group.create_task(_read(story, reader))
        group.create_task(heal(story, FAULTS_S))
    dismiss_doubles(story)
    if len(cluster.brokers) > 1 and story.dice.chance(0.3):
        story.bury(story.dice.pick(cluster.brokers))
    await _settle(story)
    await _rest(story)
    watching.cancel()
    await _compare(story)
    for member in list(story.members):
        end(story, member)


async def _populate(story: Story) -> None:
    for group_id in story.casts:
        for _ in range(story.dice.number(1, 4)):
            enter(story, group_id)
    while story.cluster.loop.time() < FAULTS_S:
        await asyncio.sleep(story.dice.waiting_s(1.5))
        if story.cluster.loop.time() < FAULTS_S:
            act(story, FAULTS_S)


async def _read(story: Story, reader: Client) -> None:
    """Somebody else looks at the offsets, wherever."""
    cluster = story.cluster
    places = sorted(cluster.topics.places(("t0", "t1")))
    while cluster.loop.time() < FAULTS_S:
        await asyncio.sleep(reader.dice.waiting_s(0.7))
        reader.move()
        await read_offsets(reader, reader.dice.pick(sorted(story.casts)), places)


def _limit_s(story: Story) -> float:
    """P2: how long a group may take once all is well: a session, a rebalance, and their sum of
    what clients wait for in vain before they ask again."""
    settings = story.cluster.settings
    session_ms = max(settings.session_ms, settings.options.consumer_session_timeout_ms)
    return LATE_S + (2 * session_ms + 2 * settings.rebalance_ms) / 1000 + 20.0


async def _settle(story: Story) -> None:
    loop = story.cluster.loop
    limit_s = loop.time() + _limit_s(story)
    earliest_s = loop.time() + LATE_S
    began_s = loop.time()
    while loop.time() < limit_s:
        await asyncio.sleep(0.5)
        clear(story)
        for member in [one for one in story.members if one.fatal is not None]:
            end(story, member)
            enter(story, member.group_id)
        unsettled = [said for group_id in story.casts for said in trouble(story, group_id)]
        if not unsettled and not story.settled_s:
            story.settled_s = loop.time() - began_s
        if unsettled:
            story.settled_s = 0.0
        elif loop.time() >= max(earliest_s, began_s + story.settled_s + CALM_S):
            return
    for group_id in story.casts:
        story.cluster.violations += [f"P2 {said}" for said in trouble(story, group_id)]


def trouble(story: Story, group_id: str) -> list[str]:
    """P2: what keeps the group from being at rest, as the log and its members see it."""
    cluster = story.cluster
    group = cluster.group(group_id)
    members = [one for one in story.members if one.group_id == group_id]
    known = set() if group is None else set(group.members)
    if known != {one.member_id for one in members}:
        return [f"{group_id}: members {sorted(known)}, alive {[one.name for one in members]}"]
    if not members:
        return []
    bad = [f"{one.name} is leaving" for one in members if one.is_leaving]
    if isinstance(group, ClassicGroup):
        if group.state is not ClassicState.STABLE:
            bad.append(f"{group_id} is {group.state.name}")
        bad += [
            f"{one.name} is in {one.generation()}, {group_id} in {group.generation}"
            for one in members
            if not (isinstance(one, ClassicMember) and one.is_in)
            or one.generation() != group.generation
        ]
    elif isinstance(group, ConsumerGroup):
        bad += [
            f"{one.name} has {len(one.owned)}, the log says {group.members[one.member_id]}"
            for one in members
            if one.owned != held(group.members[one.member_id]) or one.generation() != group.epoch
        ]
    return [*bad, *_uncovered(cluster, group_id, members)]


def _uncovered(cluster: GroupCluster, group_id: str, members: list[Member]) -> list[str]:
    read = sorted({name for one in members for name in one.topics})
    counts: dict[object, int] = dict.fromkeys(cluster.topics.places(tuple(read)), 0)
    for one in members:
        for place in one.owned:
            counts[place] = counts.get(place, 0) + 1
    return [f"{group_id}: {place} is owned {n} times" for place, n in counts.items() if n != 1]


async def _rest(story: Story) -> None:
    """P5: quiet costs no rebalance, and steady heartbeats write nothing (K8)."""
    cluster = story.cluster
    written = dict(cluster.auditor.written)
    await asyncio.sleep(QUIET_S)
    if story.settled_s:
        for group_id in story.casts:
            more = cluster.auditor.written[group_id] - written.get(group_id, 0)
            if more:
                cluster.violations.append(f"P5 {group_id}: {more} events were written in quiet")
            cluster.violations += [f"P5 {said}" for said in trouble(story, group_id)]
    causes = cluster.auditor.causes
    for group_id in story.casts:
        if causes[f"{group_id} rebalances"] > 2 * causes[f"{group_id} causes"]:
            cluster.violations.append(f"P5 {group_id}: {dict(causes)}")


async def _compare(story: Story) -> None:
    """Rule 13: all brokers, a fresh one too, have what the log means."""
    cluster = story.cluster
    fresh = story.begin(0, kill=True, elsewhere=True)
    for _ in range(200):
        if fresh.ready or fresh.died is not None:
            break
        await asyncio.sleep(0.1)
    for member in list(story.members):
        end(story, member)
    await asyncio.sleep(1.0)
    for broker in cluster.brokers:
        if not broker.ready or any(replica.stopped for replica in broker.replicas):
            cluster.violations.append(f"{broker.name} does not serve: {broker.died!r}")
            continue
        for replica, state in zip(broker.replicas, cluster.auditor.states, strict=True):
            await broker.spawn(replica.prove(arrived_s=broker.clock.monotonic_s()))
            if checkpoint_of(replica.state) != checkpoint_of(state):
                cluster.violations.append(f"R13 {broker.name} has another state than the log")
