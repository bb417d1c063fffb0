"""A member of the newer protocol as scripts play it: it beats with the epoch that it last heard."""

from collections.abc import Callable, Iterable, Mapping

from tests.golden.groups.asks import REBALANCE_MS, pulse
from tests.golden.groups.offset_asks import At, commit
from tests.golden.groups.stage import Ask, Stage

from lakelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from lakelog.wire.messages.offset_commit import OffsetCommitResponse

Beat = ConsumerGroupHeartbeatResponse
Owned = Mapping[bytes, Iterable[int]]


def has_assignment(found: Beat) -> bool:
    """Whether an answer says what the member may have."""
    return found.assignment is not None


def has_partitions(found: Beat) -> bool:
    """Whether an answer gives the member something."""
    return found.assignment is not None and bool(found.assignment.topic_partitions)


class Consumer:
    """One member, on a connection of its own."""

    def __init__(
        self, stage: Stage, name: str, on: str = "a", *, instance: str | None = None
    ) -> None:
        self.stage = stage
        self.group = stage.group()
        self.name = name
        self.on = on
        self.instance = instance
        self.epoch = 0

    async def enter(
        self,
        *topics: str,
        epoch: int = 0,
        assignor: str | None = None,
        rebalance_ms: int = REBALANCE_MS,
        owned: Owned | None = None,
        version: int = 1,
    ) -> Beat:
        """Say everything, as a first heartbeat has to."""
        ask = pulse(
            self.group,
            self.name,
            epoch,
            version=version,
            instance=self.instance,
            rebalance_ms=rebalance_ms,
            names=topics,
            assignor=assignor,
            owned=owned or {},
        )
        return self._heard(await self.stage.ask(ask, self.on))

    async def enter_by(self, regex: str) -> Beat:
        """Say everything, with a pattern instead of names."""
        ask = pulse(self.group, self.name, 0, rebalance_ms=9_000, regex=regex, owned={})
        return self._heard(await self.stage.ask(ask, self.on))

    async def beat(
        self,
        *,
        epoch: int | None = None,
        owned: Owned | None = None,
        names: Iterable[str] | None = None,
        regex: str | None = None,
        assignor: str | None = None,
    ) -> Beat:
        """Say what has changed, with the epoch that was last heard or another."""
        ask = pulse(
            self.group,
            self.name,
            self.epoch if epoch is None else epoch,
            instance=self.instance,
            owned=owned,
            names=names,
            regex=regex,
            assignor=assignor,
        )
        return self._heard(await self.stage.ask(ask, self.on))

    async def beat_until(
        self, wanted: Callable[[Beat], bool] = has_assignment, *, owned: Owned | None = None
    ) -> Beat:
        """Go on beating until the answer is wanted."""

        def ask() -> Ask[Beat]:
            return pulse(self.group, self.name, self.epoch, instance=self.instance, owned=owned)

        return await self.stage.until(ask, lambda found: wanted(self._heard(found)), self.on)

    async def leave(self, epoch: int = -1) -> Beat:
        """Leave for good, or (-2) for a while."""
        return await self.beat(epoch=epoch)

    async def commit(
        self, *offsets: At, epoch: int | None = None, version: int = 9
    ) -> OffsetCommitResponse:
        """Commit, with the epoch that was last heard or another."""
        said = self.epoch if epoch is None else epoch
        return await self.stage.ask(
            commit(self.group, said, self.name, *offsets, version=version, instance=self.instance),
            self.on,
        )

    def _heard(self, found: Beat) -> Beat:
        if found.error_code == 0 and found.member_epoch > 0:
            self.epoch = found.member_epoch
        return found
