"""What happens to the brokers of simulated groups, their clocks and their way to the stores."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.sim.group_clients import Member
from tests.sim.group_cluster import GroupBroker, GroupCluster
from tests.sim.group_modern import ModernMember

from lakelog.groups.events import Expire
from lakelog.model.failures import Failure
from lakelog.testing.faulty import Mutation
from lakelog.testing.simulation import SimEntropy

EXPIRY_MARGIN_S = 1.0
"""What was asked so shortly before an expiry may have crossed it."""


Harm = Callable[["Story", GroupBroker], Awaitable[None]]
"""Something bad that is done to a broker."""


@dataclass(slots=True)
class Story:
    """A seed while it is told."""

    cluster: GroupCluster
    dice: SimEntropy
    happens: frozenset[str]
    casts: dict[str, str] = field(
        default_factory=lambda: {"classic": "classic", "modern": "modern", "mixed": "classic"}
    )
    """Which protocol the members of a group speak; that of the mixed one changes."""
    members: list[Member] = field(default_factory=list)
    tasks: dict[str, "asyncio.Task[Any]"] = field(default_factory=dict)
    machines: dict[int, str] = field(default_factory=dict)
    everybody: list[GroupBroker] = field(default_factory=list)
    """Also the brokers that were replaced while they stood still, and may have come back."""
    settled_s: float = 0.0
    lives: int = 0
    born: int = 0

    def bury(self, broker: GroupBroker) -> None:
        """A broker dies for good."""
        self.cluster.loop.kill_process(broker.process)
        if not broker.gone.done():
            broker.gone.set_result(None)
        self.cluster.brokers.remove(broker)
        self.cluster.reached.add("a broker never came back")

    def begin(self, number: int, *, kill: bool = False, elsewhere: bool = False) -> GroupBroker:
        """A broker starts, or starts again under its old number, where it was or elsewhere."""
        self.lives += 1
        if elsewhere:
            self.machines[number] = f"machine-{self.lives}"
        for one in self.everybody:
            if one.number == number and kill and not one.process.dead:
                self.cluster.loop.kill_process(one.process)
                if not one.gone.done():
                    one.gone.set_result(None)
        machine = self.machines.setdefault(number, f"machine-of-{number}")
        broker = GroupBroker(self.cluster, number, self.lives, machine=machine)
        self.cluster.brokers = [one for one in self.cluster.brokers if one.number != number]
        self.cluster.brokers.append(broker)
        self.everybody.append(broker)
        broker.start()
        return broker

    def judge_birth(self, process: str, writer: str) -> None:
        """F2: nobody takes a name over from a broker whose session lives."""
        for one in self.cluster.brokers:
            if writer != f"broker-{one.number}" or one.name == process or not one.ready:
                continue
            if not one.process.dead and not one.process.stopped and one.holds_name():
                self.cluster.violations.append(
                    f"F2 {process} fences {one.name}, which has the name"
                )

    def judge_expiry(self, event: Expire, mutation: Mutation) -> None:
        """Nobody may expire whose heartbeat was welcome less than a session ago.

        The broker that was in charge then tells the others by its own session that it lives (K6),
        so this holds whatever happens to stores and brokers. A broker that was not in charge may
        have been too late to say so, and one that was may have said "expired" just before.
        """
        for one in self.members:
            if one.group_id != event.group_id or one.member_id != event.member_id:
                continue
            contact, at_s = one.contact, mutation.at_s
            if contact is None or contact.asked_s + self.session_s(one) <= at_s:
                continue
            is_other = mutation.process != contact.broker.name
            is_sure = contact.is_holder and is_other
            if self.cluster.settings.is_calm and not is_sure:
                margin_s = at_s - contact.asked_s
                is_well = not contact.broker.process.dead
                is_well = is_well and contact.broker.unwell_s < contact.asked_s
                is_sure = is_well and margin_s > EXPIRY_MARGIN_S
            if is_sure:
                self.cluster.violations.append(
                    f"K6 {one.name} was expired at {at_s:.3f} by {mutation.process}, but welcome at"
                    f" {contact.asked_s:.3f} at {contact.broker.name}"
                )

    def session_s(self, member: Member) -> float:
        settings = self.cluster.settings
        if isinstance(member, ModernMember):
            return settings.options.consumer_session_timeout_ms / 1000
        return settings.session_ms / 1000


async def harm(story: Story, until_s: float) -> None:
    """Do what the seed says, until it is time to heal."""
    cluster, dice = story.cluster, story.dice
    named: tuple[tuple[str, Harm], ...] = (
        ("kill", _kill),
        ("stop", _stop),
        ("cut", _cut),
        ("jump", _jump),
        ("drain", _drain),
        ("lag", _lag),
        ("mute", _mute),
    )
    harms = [act for name, act in named if name in story.happens]
    while harms:
        await asyncio.sleep(dice.waiting_s(3.0))
        if cluster.loop.time() >= until_s:
            return
        if cluster.brokers:
            await dice.pick(harms)(story, dice.pick(cluster.brokers))


async def heal(story: Story, at_s: float) -> None:
    """From here on nothing goes wrong; what is under way still may."""
    cluster = story.cluster
    await asyncio.sleep(at_s - cluster.loop.time())
    for faults in (*cluster.meta_faults, cluster.object_faults):
        faults.heal()
    cluster.loses_replies = 0.0
    for broker in cluster.brokers:
        broker.lag.until_s = broker.lag.mute_until_s = 0.0
    for member in story.members:
        member.moves = 0.0
        if isinstance(member, ModernMember):
            member.is_slow = False
    cluster.loop.note("heal")


async def watch(story: Story) -> None:
    """A broker that ended by itself is started again by its supervisor, but must have a reason."""
    cluster = story.cluster
    while True:
        await asyncio.sleep(0.25)
        for broker in list(cluster.brokers):
            if broker.process.dead:
                continue
            fenced = any("another process" in (one.stopped or "") for one in broker.replicas)
            if broker.died is None and not fenced:
                continue
            if broker.died is not None and not isinstance(broker.died, Failure):
                cluster.violations.append(f"{broker.name} died: {broker.died!r}")
            cluster.reached.add("a broker ended by itself")
            story.begin(broker.number, kill=True)


async def _kill(story: Story, broker: GroupBroker) -> None:
    """Kill a process; its clients hear of it at once, or never if its machine died too."""
    cluster = story.cluster
    cluster.loop.kill_process(broker.process)
    cluster.loop.note("kill", broker.name)
    cluster.reached.add("a broker was killed")
    is_machine = story.dice.chance(0.3)
    if not is_machine and not broker.gone.done():
        broker.gone.set_result(None)
    await asyncio.sleep(story.dice.pick((0.1, 2.0, 6.0)))
    story.begin(broker.number, elsewhere=is_machine)


async def _stop(story: Story, broker: GroupBroker) -> None:
    """SIGSTOP and SIGCONT; now and then another machine has taken over meanwhile."""
    loop = story.cluster.loop
    loop.stop_process(broker.process)
    broker.unwell_s = loop.time()
    loop.note("stop", broker.name)
    pause_s = story.dice.pick((0.5, 2.0, 5.0, 14.0))
    is_replaced = pause_s > 4 and story.dice.chance(0.3)
    await asyncio.sleep(pause_s / 2)
    if is_replaced:
        story.begin(broker.number, elsewhere=True)
    await asyncio.sleep(pause_s / 2)
    loop.continue_process(broker.process)
    broker.unwell_s = loop.time()
    loop.note("continue", broker.name)
    story.cluster.reached.add("a broker was stopped and continued")
    if is_replaced:
        await asyncio.sleep(story.dice.between(0, 3))
        loop.kill_process(broker.process)
        if not broker.gone.done():
            broker.gone.set_result(None)
        story.cluster.reached.add("a broker was replaced while it was stopped")


async def _cut(story: Story, broker: GroupBroker) -> None:
    """A store is out of reach, for one broker or for all of them."""
    cluster = story.cluster
    until_s = cluster.loop.time() + story.dice.pick((0.5, 3.0, 9.0, 14.0))
    choice = story.dice.number(0, 4)
    if choice == 0:
        cluster.object_faults.outage_until_s = until_s
    elif choice == 1:
        for faults in cluster.meta_faults:
            faults.outage_until_s = until_s
        cluster.reached.add("the metadata store was out of reach")
    else:
        cluster.meta_faults[broker.number].outage_until_s = until_s
        cluster.reached.add("one broker was cut off")
    cluster.loop.note("cut", choice, until_s)


async def _lag(story: Story, broker: GroupBroker) -> None:
    """A broker's appends take long, and a member that it holds is silent for just too long.

    So what the broker says about it may come after the member has spoken to another one (K4).
    """
    cluster = story.cluster
    cluster.reached.add("the appends of a broker took long")
    held = [one for one in story.members if _holder_of(cluster, one) == broker.number]
    now_s = cluster.loop.time()
    broker.lag.until_s = now_s + story.dice.pick((3.0, 14.0))
    if held:
        member = story.dice.pick(held)
        member.paused_until_s = now_s + story.session_s(member) + story.dice.between(0.0, 3.0)
        member.moves = 0.9


def _holder_of(cluster: GroupCluster, member: Member) -> int:
    group = cluster.group(member.group_id)
    known = None if group is None else group.members.get(member.member_id)
    return -1 if known is None else known.holder


async def _mute(story: Story, broker: GroupBroker) -> None:
    """A broker can read and be reached, but write nothing: its session ends."""
    broker.lag.mute_until_s = story.cluster.loop.time() + story.dice.pick((2.0, 14.0))
    story.cluster.reached.add("a broker could read but not write")


async def _jump(story: Story, broker: GroupBroker) -> None:
    broker.clock.skew_ms += story.dice.pick((-3_600_000, -5_000, 5_000, 3_600_000))
    story.cluster.reached.add("a clock jumped")


async def _drain(story: Story, broker: GroupBroker) -> None:
    """A stop in good order, and a new start."""
    if not broker.ready or broker.process.dead or broker.process.stopped:
        return
    leaving = broker.spawn(broker.leave())
    await asyncio.wait([leaving], timeout=5.0)
    if leaving.done() and not isinstance(leaving.exception(), Failure | None):
        story.cluster.violations.append(f"{broker.name} could not stop: {leaving.exception()!r}")
    story.cluster.reached.add("a broker stopped in good order")
    story.begin(broker.number, kill=True)
