"""How scripts bring a group into a state: a few steps that many of them begin with."""

from collections.abc import Iterable

from tests.golden.groups.asks import PLAIN, beat, described, join, sync
from tests.golden.groups.stage import Parked, Stage

from lakelog.wire.messages.join_group import JoinGroupResponse
from lakelog.wire.messages.sync_group import SyncGroupResponse

REBALANCE_IN_PROGRESS = 27


async def admitted(
    stage: Stage, group: str, on: str = "a", protocols: Iterable[tuple[str, bytes]] = PLAIN
) -> JoinGroupResponse:
    """The first member of a group: asks for an id, joins with it, leads a generation."""
    given = await stage.ask(join(group, protocols=protocols), on)
    return await stage.ask(join(group, given.member_id, protocols=protocols), on)


async def alone(
    stage: Stage, group: str, on: str = "a", protocols: Iterable[tuple[str, bytes]] = PLAIN
) -> JoinGroupResponse:
    """A group with one member, stable."""
    joined = await admitted(stage, group, on, protocols)
    await synced(stage, group, joined, on)
    return joined


async def synced(
    stage: Stage, group: str, joined: JoinGroupResponse, on: str = "a"
) -> SyncGroupResponse:
    """The leader gives every member the bytes `for ` and its metadata."""
    # In an order of our own: Kafka lists members by the hash of their ids.
    members = sorted(joined.members, key=lambda each: each.metadata)
    given = {each.member_id: b"for " + each.metadata for each in members}
    name = joined.protocol_name
    return await stage.ask(
        sync(group, joined.generation_id, joined.member_id, given, name=name), on
    )


async def knocking(
    stage: Stage,
    group: str,
    first: JoinGroupResponse,
    on: str = "b",
    protocols: Iterable[tuple[str, bytes]] = PLAIN,
) -> tuple[str, Parked[JoinGroupResponse]]:
    """A second member asks for an id and joins; its join is parked when this returns."""
    given = await stage.ask(join(group, protocols=protocols), on)
    parked = await stage.send(join(group, given.member_id, protocols=protocols), on)
    await rebalancing(stage, group, first)
    return given.member_id, parked


async def rebalancing(stage: Stage, group: str, member: JoinGroupResponse, on: str = "a") -> None:
    """Wait until the member hears that the group rebalances."""
    await stage.until(
        lambda: beat(group, member.generation_id, member.member_id),
        lambda found: found.error_code == REBALANCE_IN_PROGRESS,
        on,
    )


async def has_members(stage: Stage, group: str, count: int) -> None:
    """Wait until the group has that many members, whatever its state."""
    await stage.until(
        lambda: described(group), lambda found: len(found.groups[0].members) == count, "admin"
    )
