"""The session's own rules: one request at a time, what counts as heard, what leaving gives up."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from lakelog.clock import SeededEntropy, SystemClock
from lakelog.discovery.callbacks import DiscoveryCallbacks, MembershipView
from lakelog.discovery.config import KafkaDiscoveryConfig
from lakelog.discovery.group_requests import GroupRequest, SendHeartbeat
from lakelog.discovery.member import Phase, make_member
from lakelog.discovery.membership_events import (
    Announce,
    CoordinatorLost,
    CountsRead,
    DescribeAnswered,
    Event,
    HeartbeatAnswered,
    JoinAnswered,
    LeaveAnswered,
    ReadCounts,
    SendDescribe,
    SendJoin,
    SendLeave,
    SendSync,
    StartRequested,
    StopRequested,
    SyncAnswered,
)
from lakelog.discovery.node import NodeMetadata, NodeState
from lakelog.discovery.roster import RawMember
from lakelog.discovery.session import MembershipSession, SessionTimes
from lakelog.retry import Backoff

CONFIG = KafkaDiscoveryConfig(
    node_id="a", topics=("t",), session_timeout=0.3, heartbeat_interval=0.02, max_poll_interval=60.0
)
LIMIT_S = 10.0
MEMBER_ID = "a-1"


class Coordinator:
    """A messenger that answers as a coordinator of a group with one member would."""

    def __init__(self) -> None:
        self.requests: list[GroupRequest] = []
        self.metadata = b""
        self.assignment = b""
        self.generation = 0
        self.aside_count = 0
        self.counted = {"t": 2}
        self.parked: asyncio.Event | None = None
        """While it is there joins wait for it."""
        self.beat: Callable[[], Awaitable[Event]] | None = None
        self.under_way = 0

    async def run(self, request: GroupRequest) -> Event:
        assert self.under_way == 0, "one request at a time"
        self.under_way += 1
        self.requests.append(request)
        try:
            return await self._answer(request)
        finally:
            self.under_way -= 1

    async def _answer(self, request: GroupRequest) -> Event:
        match request:
            case SendJoin():
                if self.parked is not None:
                    await self.parked.wait()
                self.generation += 1
                self.metadata = request.metadata
                me = RawMember(MEMBER_ID, "a", request.metadata)
                return JoinAnswered(0, MEMBER_ID, self.generation, MEMBER_ID, members=(me,))
            case ReadCounts():
                return CountsRead(self.counted)
            case SendSync():
                self.assignment = dict(request.assignments)[MEMBER_ID]
                return SyncAnswered(0, self.assignment)
            case SendDescribe():
                me = RawMember(MEMBER_ID, "a", self.metadata, self.assignment)
                return DescribeAnswered(0, "Stable", (me,))
            case SendHeartbeat():
                return await self.beat() if self.beat is not None else HeartbeatAnswered(0)
            case SendLeave():
                return LeaveAnswered()

    async def counts(self, topics: Sequence[str]) -> dict[str, int]:
        return {topic: self.counted[topic] for topic in topics}

    async def beat_aside(self, beat: SendHeartbeat) -> int | None:
        assert beat.member_id == MEMBER_ID
        self.aside_count += 1
        return 27

    def forget_coordinator(self) -> None: ...

    def kinds(self) -> list[str]:
        return [type(request).__name__ for request in self.requests]


class Scene:
    """A session with its coordinator and its owner, on the running loop."""

    def __init__(self) -> None:
        self.coordinator = Coordinator()
        self.subscribers = DiscoveryCallbacks()
        member = make_member(CONFIG)
        self.view = MembershipView(member, self.subscribers, SystemClock())
        self.session = MembershipSession(
            member,
            self.coordinator,
            self.view,
            SessionTimes.of(CONFIG, topics_s=0.05, retry=Backoff(10, 100)),
            clock=SystemClock(),
            entropy=SeededEntropy("session"),
        )

    async def until(self, what: Callable[[], object]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not what():
                await asyncio.sleep(0.002)


def play(scene_of: Callable[[Scene], Awaitable[None]], *, start: bool = True) -> None:
    """Run a scene; the session runs beside it and is cancelled at its end."""

    async def work() -> None:
        scene = Scene()
        running = asyncio.ensure_future(scene.session.run())
        if start:
            scene.session.handle(StartRequested())
            await scene.until(lambda: scene.view.member.nodes)
        try:
            await scene_of(scene)
        finally:
            running.cancel()
            await asyncio.wait([running])
            scene.view.end()
            assert scene.view.callbacks.close(LIMIT_S)

    asyncio.run(work())


def test_it_joins_plans_syncs_looks_and_beats() -> None:
    async def scene(at: Scene) -> None:
        await at.until(lambda: at.coordinator.kinds().count("SendHeartbeat") >= 3)
        assert at.coordinator.kinds()[:4] == ["SendJoin", "ReadCounts", "SendSync", "SendDescribe"]
        assert at.view.member.assigned_partitions == (0, 1)
        assert at.view.state is NodeState.ACTIVE

    play(scene)


def test_a_heartbeat_counts_from_when_it_was_sent_not_from_its_answer() -> None:
    async def scene(at: Scene) -> None:
        lost: list[object] = []
        at.subscribers.lost.add(lost.append)

        async def late() -> Event:
            await asyncio.sleep(2 * 0.3)  # longer than a session, as for a process that was stopped
            return HeartbeatAnswered(0)

        at.coordinator.beat = late
        await at.until(lambda: lost)
        assert lost == [(("t", 0), ("t", 1))]

    play(scene)


def test_no_answer_for_a_session_loses_the_partitions_and_joins_again() -> None:
    async def scene(at: Scene) -> None:
        async def gone() -> Event:
            return CoordinatorLost("nobody answers")

        at.coordinator.beat = gone
        await at.until(lambda: at.view.state is NodeState.SUSPECTED)
        assert at.view.member.held
        assert at.view.last_failure is not None
        assert "nobody answers" in str(at.view.last_failure)
        at.coordinator.parked = asyncio.Event()
        await at.until(lambda: not at.view.member.held)
        at.coordinator.beat = None
        at.coordinator.parked.set()
        await at.until(lambda: at.view.member.held)
        assert at.view.state is NodeState.ACTIVE

    play(scene)


def test_a_parked_join_outlasts_the_session_because_it_beats_aside() -> None:
    async def scene(at: Scene) -> None:
        at.coordinator.parked = asyncio.Event()
        at.session.handle(Announce(NodeMetadata(cores=2)))
        await at.until(lambda: at.coordinator.aside_count > 2 * 0.3 / 0.02)
        assert at.view.member.phase is Phase.JOINING
        assert at.view.member.held, "nothing was lost meanwhile"
        at.coordinator.parked.set()
        await at.until(lambda: at.view.member.phase is Phase.SETTLED)

    play(scene)


def test_leaving_gives_up_a_parked_join() -> None:
    async def scene(at: Scene) -> None:
        at.coordinator.parked = asyncio.Event()
        at.session.handle(StartRequested())
        await at.until(lambda: at.coordinator.under_way)
        at.session.handle(StopRequested())
        await asyncio.wait_for(at.view.left(), LIMIT_S)
        assert at.coordinator.kinds() == ["SendJoin", "SendLeave"]
        assert at.view.state is NodeState.LEFT

    play(scene, start=False)


def test_a_node_that_never_asked_removes_nobody_when_it_leaves() -> None:
    async def work() -> None:
        scene = Scene()
        scene.session.handle(StartRequested())
        scene.session.handle(StopRequested())
        running = asyncio.ensure_future(scene.session.run())
        await asyncio.wait_for(scene.view.left(), LIMIT_S)
        running.cancel()
        await asyncio.wait([running])
        assert scene.coordinator.kinds() == []

    asyncio.run(work())


def test_partitions_are_let_go_of_before_it_leaves() -> None:
    async def scene(at: Scene) -> None:
        order: list[str] = []
        at.subscribers.revoked.add(lambda _: order.append(f"revoked {at.coordinator.kinds()[-1]}"))
        at.session.handle(StopRequested())
        assert not at.view.member.held, "out of sight at once"
        await asyncio.wait_for(at.view.left(), LIMIT_S)
        assert len(order) == 1
        assert "SendLeave" not in order[0]
        assert at.coordinator.kinds()[-1] == "SendLeave"

    play(scene)


def test_the_leader_sees_that_a_topic_has_grown() -> None:
    async def scene(at: Scene) -> None:
        changes: list[object] = []
        at.subscribers.partition_count.add(changes.append)
        at.coordinator.counted = {"t": 5}
        await at.until(lambda: len(at.view.member.held) == 5)
        await at.until(lambda: changes)
        assert len(changes) == 1

    play(scene)


def test_a_bug_is_raised_not_swallowed() -> None:
    async def work() -> None:
        scene = Scene()

        async def broken() -> Event:
            raise ZeroDivisionError

        scene.coordinator.beat = broken
        scene.session.handle(StartRequested())
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(scene.session.run(), LIMIT_S)
        scene.view.end()

    asyncio.run(work())
