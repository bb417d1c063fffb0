"""Members of groups, in both protocols: they join, take what they get, and say that they live.

Rules: a member does what a real client does with every code that a healthy broker may answer, and
fails on any other. A squad is settled when all its members are in one generation (or epoch), hold
all partitions among them, and none holds less than its share.
"""

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections import Counter

from bench import group_wire as wire
from bench.group_lane import Lane
from bench.raw import KafkaError

LOADING, NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
LATER = frozenset({LOADING, NOT_AVAILABLE, NOT_COORDINATOR})
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE, MEMBER_ID_REQUIRED, FENCED_EPOCH = (
    22,
    25,
    27,
    79,
    110,
)
SESSION_MS, REBALANCE_MS = 45_000, 60_000
RETRY_S = 0.05


class Squad:
    """One group as all its members together see it."""

    def __init__(self, group_id: str, topic: str, *, size: int, partitions: int) -> None:
        self.group_id = group_id
        self.topic = topic
        self.size = size
        self.partitions = partitions
        self.members: list[Member] = []
        self.settled = asyncio.Event()
        self.rejoins = 0
        self.generation = 0
        self._after = -1
        self._places: dict[Member, tuple[int, int]] = {}
        self._crowds: Counter[int] = Counter()
        self._held = 0

    def expect(self, size: int, *, after: int) -> None:
        """Begin to wait until so many members are settled in a generation after this one."""
        self.size = size
        self._after = after
        self.settled.clear()

    def forget(self) -> None:
        """Hold no member for placed until it says so again."""
        for member in list(self._places):
            self.displace(member)

    def place(self, member: "Member", generation: int, held: int) -> None:
        """A member knows its generation and how many partitions it holds."""
        if self._places.get(member) == (generation, held):
            return
        self.displace(member)
        self._places[member] = (generation, held)
        self._crowds[generation] += 1
        self._held += held
        if generation > self._after and self._crowds[generation] == self.size:
            self._judge(generation)

    def displace(self, member: "Member") -> None:
        """A member has lost its place, or leaves."""
        if member not in self._places:
            return
        generation, held = self._places.pop(member)
        self._crowds[generation] -= 1
        self._held -= held

    def _judge(self, generation: int) -> None:
        share = self.partitions // self.size
        is_fair = all(held >= share for _, held in self._places.values())
        if self._held == self.partitions and is_fair and len(self._places) == self.size:
            self.generation = generation
            self.settled.set()

    def __str__(self) -> str:
        crowds = {generation: count for generation, count in self._crowds.items() if count}
        return (
            f"{self.group_id}: members by generation {crowds}, {self._held} of {self.partitions} "
            f"partitions held, {self.rejoins} rejoins"
        )


class Member(ABC):
    """What members of both protocols have in common."""

    def __init__(self, squad: Squad, lane: Lane) -> None:
        self.squad = squad
        self.lane = lane

    async def live(
        self, until: asyncio.Event, *, interval_s: float, is_inside: bool = False
    ) -> None:
        """Join, then say so every interval, and join again when told to."""
        while not until.is_set():
            if is_inside:
                is_inside = await self.stay()
            else:
                await self.enter()
                is_inside = True
            if is_inside and not until.is_set():
                await wait(until, interval_s)

    @abstractmethod
    async def enter(self) -> None:
        """Join, and return with an assignment."""

    @abstractmethod
    async def stay(self) -> bool:
        """Heartbeat once; False where the member has to join again."""

    @abstractmethod
    async def pulse(self) -> int:
        """Heartbeat once when nothing changes; return the code."""

    @abstractmethod
    async def leave(self) -> None:
        """Leave the group."""


async def wait(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, but not longer."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


class ClassicMember(Member):
    """A member that joins and syncs; the leader gives every member a run of partitions."""

    def __init__(self, squad: Squad, lane: Lane) -> None:
        super().__init__(squad, lane)
        self.member_id = ""
        self.generation = -1
        self.held = 0

    async def enter(self) -> None:
        """Join and sync until both succeed in one generation."""
        while True:
            answer = await self._join()
            shares = self._share_out(answer) if answer.leader == self.member_id else {}
            body = wire.sync(self.squad.group_id, self.member_id, answer.generation, shares)
            found = await self.lane.ask(wire.SYNC, wire.SYNC_VERSION, body)
            code, given = wire.synced(found)
            if code == 0:
                self.generation, self.held = answer.generation, wire.assigned_count(given)
                self.squad.place(self, self.generation, self.held)
                return
            await self._heed(code)

    async def _join(self) -> wire.Joined:
        metadata = wire.subscription(self.squad.topic)
        while True:
            body = wire.join(
                self.squad.group_id,
                self.member_id,
                metadata,
                session_ms=SESSION_MS,
                rebalance_ms=REBALANCE_MS,
            )
            answer = wire.joined(await self.lane.ask(wire.JOIN, wire.JOIN_VERSION, body))
            if answer.code == MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            elif answer.code == 0:
                self.member_id = answer.member_id
                return answer
            else:
                await self._heed(answer.code)

    def _share_out(self, answer: wire.Joined) -> dict[str, bytes]:
        count, partitions = len(answer.members), self.squad.partitions
        bounds = [partitions * number // count for number in range(count + 1)]
        return {
            each: wire.assignment(self.squad.topic, range(bounds[number], bounds[number + 1]))
            for number, each in enumerate(answer.members)
        }

    async def _heed(self, code: int) -> None:
        """Prepare for trying again after an error."""
        self.squad.displace(self)
        if code in LATER:
            await asyncio.sleep(RETRY_S)
        elif code == UNKNOWN_MEMBER:
            self.member_id = ""
        elif code not in {REBALANCE, ILLEGAL_GENERATION}:
            raise KafkaError(f"a classic member of {self.squad} was answered {code}")

    async def stay(self) -> bool:
        """Heartbeat once; False where the member has to join again."""
        code = await self.pulse()
        if code == 0:
            self.squad.place(self, self.generation, self.held)
            return True
        await self._heed(code)
        self.squad.rejoins += code not in LATER
        return code in LATER

    async def pulse(self) -> int:
        """Heartbeat once when nothing changes; return the code."""
        body = wire.heartbeat(self.squad.group_id, self.member_id, self.generation)
        answer = await self.lane.ask(wire.HEARTBEAT, wire.HEARTBEAT_VERSION, body)
        return wire.code_after_throttle(answer)

    async def leave(self) -> None:
        """Leave the group."""
        self.squad.displace(self)
        body = wire.leave(self.squad.group_id, [self.member_id])
        answer = await self.lane.ask(wire.LEAVE, wire.LEAVE_VERSION, body)
        while (code := wire.code_after_throttle(answer)) in LATER:
            await asyncio.sleep(RETRY_S)
            answer = await self.lane.ask(wire.LEAVE, wire.LEAVE_VERSION, body)
        if code:
            raise KafkaError(f"leaving {self.squad} was answered {code}")


class ConsumerMember(Member):
    """A member of the newer protocol: it says what it holds and is told what it should hold."""

    def __init__(self, squad: Squad, lane: Lane) -> None:
        super().__init__(squad, lane)
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.is_new_connection = False
        self._held: wire.Held = {}

    async def enter(self) -> None:
        """Join with nothing in hand."""
        while True:
            self.epoch, self._held = 0, {}
            answer = await self._ask(0, is_full=True, with_held=True)
            if answer.code not in LATER:
                break
            await asyncio.sleep(RETRY_S)
        await self._take(answer)

    async def stay(self) -> bool:
        """Heartbeat once; False where the member has to join again."""
        # After a new connection a client says everything again, as Java's does.
        is_full, self.is_new_connection = self.is_new_connection, False
        answer = await self._ask(self.epoch, is_full=is_full, with_held=is_full)
        if answer.code == 0:
            await self._take(answer)
            return True
        self.squad.displace(self)
        if answer.code in LATER:
            self.is_new_connection = is_full
            await asyncio.sleep(RETRY_S)
            return True
        if answer.code not in {UNKNOWN_MEMBER, FENCED_EPOCH}:
            self._fail(answer)
        self.squad.rejoins += 1
        return False

    async def pulse(self) -> int:
        """Heartbeat once when nothing changes; return the code."""
        return (await self._ask(self.epoch, is_full=False, with_held=False)).code

    async def leave(self) -> None:
        """Leave the group."""
        self.squad.displace(self)
        while (answer := await self._ask(-1, is_full=False, with_held=False)).code in LATER:
            await asyncio.sleep(RETRY_S)
        if answer.code:
            self._fail(answer)

    async def _take(self, answer: wire.Beaten) -> None:
        """Follow an answer: what is no longer ours is let go at once, and the broker told."""
        while True:
            if answer.code != 0:
                self._fail(answer)
            self.epoch = answer.epoch
            is_changed = answer.held is not None and answer.held != self._held
            if answer.held is not None:
                self._held = answer.held
            count = sum(len(partitions) for partitions in self._held.values())
            self.squad.place(self, self.epoch, count)
            if not is_changed:
                return
            answer = await self._ask(self.epoch, is_full=False, with_held=True)

    def _fail(self, answer: wire.Beaten) -> None:
        raise KafkaError(
            f"a member of {self.squad} at epoch {self.epoch} was answered {answer.code} "
            f"{answer.message}"
        )

    async def _ask(self, epoch: int, *, is_full: bool, with_held: bool) -> wire.Beaten:
        body = wire.beat(
            self.squad.group_id,
            self.member_id,
            epoch,
            topic=self.squad.topic if is_full else None,
            held=self._held if with_held else None,
        )
        # The second header version of a request is the first with an empty tag section behind it.
        return wire.beaten(await self.lane.ask(wire.BEAT, wire.BEAT_VERSION, b"\0" + body))
