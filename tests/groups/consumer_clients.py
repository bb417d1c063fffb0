"""A client of the consumer protocol, as much of it as a group can see."""

from dataclasses import dataclass, field

from tests.groups.consumer_build import REBALANCE_MS, Fields, beat_of

from lakelog.groups.events import ConsumerHeartbeat, ConsumerHeartbeatResult, Owned
from lakelog.model.errors import ErrorCode

REJOIN = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


def owned_of(partitions: frozenset[tuple[bytes, int]]) -> Owned:
    """The partitions as a heartbeat names them."""
    topics = sorted({topic for topic, _ in partitions})
    return tuple(
        (topic, tuple(sorted(number for other, number in partitions if other == topic)))
        for topic in topics
    )


@dataclass(slots=True)
class Client:
    """A consumer: it reads what it owns, and owns what it was told as soon as it settles."""

    member_id: str
    instance_id: str | None = None
    names: tuple[str, ...] = ()
    pattern: str = ""
    epoch: int = 0
    owned: frozenset[tuple[bytes, int]] = frozenset()
    told: frozenset[tuple[bytes, int]] = frozenset()
    """The assignment that it heard last."""
    is_full: bool = True
    """Whether the next heartbeat tells everything: nothing was heard to the last one."""
    is_running: bool = True
    unsaid: Fields = field(default_factory=Fields)
    """What the next heartbeat has to tell."""

    def settle(self) -> None:
        """Let go of what is no longer assigned and take what is."""
        if self.owned != self.told:
            self.owned = self.told
            self.unsaid["owned"] = owned_of(self.owned)

    def read(self, names: tuple[str, ...], pattern: str) -> None:
        """Read something else from now on."""
        self.names, self.pattern = names, pattern
        self.unsaid["names"], self.unsaid["pattern"] = names, pattern

    def next_beat(self) -> ConsumerHeartbeat:
        """What it sends now."""
        if self.epoch == 0:
            self.owned = self.told = frozenset()
        told = self.unsaid
        if self.is_full or self.epoch == 0:
            told = {
                "rebalance_timeout_ms": REBALANCE_MS,
                "names": self.names,
                "pattern": self.pattern,
                "owned": owned_of(self.owned),
            }
        told = {**told, "instance_id": self.instance_id}
        # Until it is answered, nobody knows whether it arrived.
        self.is_full = True
        return beat_of(self.member_id, self.epoch, **told)

    def hear(self, answer: ConsumerHeartbeatResult) -> None:
        """Take in the answer to the last heartbeat."""
        if answer.code in REJOIN:
            self.forget()
            return
        if answer.code is not ErrorCode.NONE:
            self.stop()
            return
        assert answer.epoch > 0
        self.epoch = answer.epoch
        self.is_full = False
        self.unsaid = Fields()
        if answer.assignment is not None:
            self.told = frozenset(
                (topic, number) for topic, numbers in answer.assignment for number in numbers
            )

    def forget(self) -> None:
        """Abandon everything and join again."""
        self.epoch = 0
        self.owned = self.told = frozenset()

    def stop(self) -> None:
        """Be gone."""
        self.forget()
        self.is_running = False
