"""A classic member made by hand, request by request, and what a paused broker must refuse it.

The member sits at the broker that stops. While it is stopped another member takes over at the
other broker. What the first then asks with its old generation must be refused everywhere.
"""

import asyncio
import struct
import time
from dataclasses import dataclass

from tests.compat.groups.look import find_coordinator
from tests.compat.groups.scene import Scene

from lakelog.kafka_client.connection import BrokerConnection
from lakelog.kafka_client.dialing import dial
from lakelog.model.failures import Failure
from lakelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from lakelog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from lakelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from lakelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from lakelog.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

TOPIC = "pause"
MEMBER_ID_REQUIRED = 79
PAUSE_S = 16.0
TAKEOVER_TIMEOUT_S = 60.0
RETRY_S = 0.3
OLD_OFFSET, NEW_OFFSET, STALE_OFFSET = 1, 2, 99
PASSING = {14, 15, 16, 27}
GROUP = "by-hand"


def subscription() -> bytes:
    """Return version 0 of the consumer protocol's metadata."""
    name = TOPIC.encode()
    return struct.pack(">hih", 0, 1, len(name)) + name + struct.pack(">i", -1)


@dataclass(slots=True)
class Hand:
    """One member on one connection."""

    group: str
    session_ms: int
    client: BrokerConnection
    member_id: str = ""
    generation: int = -1
    topic_id: bytes = b""

    @classmethod
    async def connect(cls, group: str, session_ms: int, port: int) -> "Hand":
        """Connect to a broker and learn the topic's id."""
        client = await dial(f"127.0.0.1:{port}")
        asked = MetadataRequest(topics=(MetadataRequestTopic(name=TOPIC),))
        answer = await client.call(asked, MetadataResponse)
        return cls(group, session_ms, client, topic_id=answer.topics[0].topic_id)

    async def join(self) -> int:
        """Join and, as the leader, hand out nothing; return the error code."""
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=30_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol("range", subscription()),),
        )
        answer = await self.client.call(request, JoinGroupResponse)
        if answer.error_code == MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return await self.join()
        if answer.error_code:
            return answer.error_code
        self.generation, self.member_id = answer.generation_id, answer.member_id
        assignments = tuple(
            SyncGroupRequestAssignment(each.member_id, b"") for each in answer.members
        )
        sync = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        return (await self.client.call(sync, SyncGroupResponse)).error_code

    async def commit(self, offset: int) -> int:
        """Commit partition 0 and return the error code."""
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = OffsetCommitRequestTopic(topic_id=self.topic_id, partitions=(part,), name=TOPIC)
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=(topic,),
        )
        answer = await self.client.call(request, OffsetCommitResponse)
        return answer.topics[0].partitions[0].error_code

    async def heartbeat(self) -> int:
        """Report, and return the error code."""
        request = HeartbeatRequest(self.group, self.generation, self.member_id)
        return (await self.client.call(request, HeartbeatResponse)).error_code


async def insist(deadline_s: float, port: int, group: str, session_ms: int) -> Hand:
    """Join at a broker for as long as it says that it cannot yet."""
    while True:
        hand = await Hand.connect(group, session_ms, port)
        code = await hand.join()
        if code == 0:
            return hand
        await hand.client.close()
        if code not in PASSING or time.monotonic() > deadline_s:
            raise TimeoutError(f"joining {group} answered {code}")
        await asyncio.sleep(RETRY_S)


def owned_group(scene: Scene, node_id: int) -> str:
    """Return a group name that this broker coordinates."""
    for number in range(200):
        group = f"{GROUP}-{node_id}-{number}"
        if find_coordinator(scene.cluster.port(node_id), group) == node_id:
            return group
    raise TimeoutError(f"broker {node_id} coordinates no group")


def probe_pause(scene: Scene, victim: int) -> str:
    """Pause a broker for longer than the sessions, ask what must be refused; return the group."""
    group = owned_group(scene, victim)
    try:
        asyncio.run(pause_and_ask(scene, victim, group))
    finally:
        scene.cluster.resume(victim)
    if scene.cluster.name == "ours":
        # Kafka's broker answers from its old state until it has heard that it was replaced.
        judge_committed(scene, group)
    return group


def judge_committed(scene: Scene, group: str) -> None:
    """What the new member committed is what stays."""
    found = scene.admin.committed(group)
    if found != {0: NEW_OFFSET}:
        scene.found(f"{group}: committed is {found}, not {NEW_OFFSET}")


async def pause_and_ask(scene: Scene, victim: int, group: str) -> None:
    """Take over from a member at a paused broker; then let it ask with its old generation."""
    deadline_s = time.monotonic() + TAKEOVER_TIMEOUT_S
    old = await insist(deadline_s, scene.cluster.port(victim), group, scene.session_ms)
    if code := await old.commit(OLD_OFFSET):
        scene.found(f"{group}: a first commit answered {code}")
    scene.cluster.pause(victim)
    paused_s = time.monotonic()
    deadline_s = paused_s + TAKEOVER_TIMEOUT_S
    new = await insist(deadline_s, scene.cluster.port(3 - victim), group, scene.session_ms)
    took_s = time.monotonic() - paused_s
    if new.generation <= old.generation:
        scene.found(f"{group}: generation {new.generation} after {old.generation}")
    if code := await new.commit(NEW_OFFSET):
        scene.found(f"{group}: the new member's commit answered {code}")
    # These wait in the paused broker's socket and are the first that it sees.
    stale = asyncio.gather(old.commit(STALE_OFFSET), return_exceptions=True)
    while time.monotonic() - paused_s < PAUSE_S:
        await asyncio.sleep(1.0)
        if code := await new.heartbeat():
            scene.found(f"{group}: the new member's heartbeat answered {code}")
            break
    scene.cluster.resume(victim)
    (answer,) = await stale
    beat = await quietly(old)
    elsewhere = Hand(group, scene.session_ms, new.client, old.member_id, old.generation)
    elsewhere.topic_id = new.topic_id
    again = await elsewhere.commit(STALE_OFFSET)
    scene.say(
        f"{group}: taken over in {took_s:.1f} s; stale commit {answer}, heartbeat {beat},"
        f" at the other broker {again}"
    )
    answers: dict[str, object] = {"commit": answer, "heartbeat": beat, "commit elsewhere": again}
    for what, said in answers.items():
        if said == 0:
            scene.found(f"{group}: a stale {what} was accepted")
    for hand in (old, new):
        await hand.client.close()


async def quietly(hand: Hand) -> int | str:
    """Report; a connection that is gone is an answer, too."""
    try:
        return await hand.heartbeat()
    except Failure as failure:
        return str(failure)
