"""From WAL objects that are in the store to records that everybody sees, exactly once.

Whoever has rows puts WAL objects into the store, where nobody sees them; then one process commits
all of them under a transaction: an application, and a version that rises with every batch of it.
The commit is atomic in each domain and is asked for until a broker says what became of it. A domain
that has the version already says so and takes nothing (X1), so a commit may be repeated at any
time, also by another process and with other objects that hold the same rows.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from lakelog.clock import Clock, SystemClock
from lakelog.domain.commit_event import APPLICATION_BYTES_MAX, VERSION_END
from lakelog.index import messages
from lakelog.index.http_client import BrokerClient, CallLimits, Repeat, known_brokers
from lakelog.index.messages import (
    NAMES_PER_QUESTION,
    WRITE,
    DomainResult,
    WriteStore,
    WriteTarget,
)
from lakelog.meta.port import RECORD_BYTES_MAX
from lakelog.model.failures import OutcomeUnknown, Refused, Unavailable
from lakelog.retry import Backoff

COMMIT_S: Final = 120.0
"""How long a commit is asked for when nobody says for how long."""

REPEAT: Final = Backoff(100, 2_000)
"""The pauses after a commit that may be repeated."""

OBJECT_OVERHEAD_BYTES: Final = 16
"""What an object takes in a question, and in a record, beside its Commit; at most."""


@dataclass(frozen=True, slots=True)
class PlacedObject:
    """A WAL object that is in the store, by the bytes of its Commit event."""

    domain: int
    commit: bytes


@dataclass(frozen=True, slots=True)
class Transaction:
    """Who writes, and which of its batches this is; versions of an application rise."""

    application: str
    version: int


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """What became of a transaction, domain by domain."""

    domains: tuple[DomainResult, ...]

    @property
    def is_new(self) -> bool:
        """Whether anything of it was taken in now."""
        return any(domain.is_new for domain in self.domains)


class WriteClient:
    """Commits WAL objects through whichever of these brokers (host:port) answers."""

    def __init__(
        self,
        brokers: Sequence[str],
        limits: CallLimits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._client = BrokerClient(
            known_brokers(brokers), WRITE.path, serves="writers", limits=limits
        )
        self._clock = clock or SystemClock()

    async def close(self) -> None:
        """End the connections and threads."""
        await self._client.close()

    async def targets(self, names: Sequence[str]) -> dict[str, WriteTarget]:
        """Those of these topics that exist, by name; raises `Unavailable`."""
        found: dict[str, WriteTarget] = {}
        for at in range(0, len(names), NAMES_PER_QUESTION):
            question = messages.TargetsQuestion(list(names[at : at + NAMES_PER_QUESTION]))
            answer = await self._client.ask("targets", question, messages.TargetsAnswer)
            found |= {one.topic: one for one in answer.targets}
        return found

    async def place(self) -> WriteStore:
        """Where objects are put now; raises `Unavailable`."""
        return await self._client.ask("place", None, WriteStore)

    async def commit(
        self,
        transaction: Transaction,
        placed: Sequence[PlacedObject],
        *,
        timeout_s: float = COMMIT_S,
    ) -> TransactionResult:
        """Make all objects visible, each domain's at once; repeats until it is known to be so.

        Raises `Refused` when it cannot be: a topic is gone, an object is not there or too old, or
        what goes into one domain is too much for one record. What other domains took in stays, and
        a repeat of the transaction does not take it in again. Raises `Unavailable` when no broker
        can have done anything in that time, and `OutcomeUnknown` when one may have.
        """
        _check(transaction)
        deadline_s = self._clock.monotonic_s() + timeout_s
        written: list[DomainResult] = []
        for some in list(_questions(transaction, placed)):  # all of them are fit, or none is asked
            answer = await self._committed(some, deadline_s)
            written += answer.domains
        return TransactionResult(tuple(written))

    async def _committed(
        self, question: messages.CommitQuestion, deadline_s: float
    ) -> messages.CommitAnswer:
        failures = 0
        is_unknown = False
        while True:
            try:
                answer = await self._client.ask(
                    "commit", question, messages.CommitAnswer, repeat=Repeat.IDEMPOTENT
                )
            except (Unavailable, OutcomeUnknown) as reason:
                is_unknown = is_unknown or isinstance(reason, OutcomeUnknown)
                failures += 1
                pause_s = REPEAT.grown_s(failures)
                if self._clock.monotonic_s() + pause_s >= deadline_s:
                    failure = OutcomeUnknown if is_unknown else Unavailable
                    raise failure(str(reason)) from reason
            else:
                if {one.domain for one in answer.domains} == {one[0] for one in question.placed}:
                    return answer
                raise OutcomeUnknown("the answer to a commit is not about what was asked")
            await asyncio.sleep(pause_s)


def _check(transaction: Transaction) -> None:
    try:
        size = len(transaction.application.encode())
    except UnicodeEncodeError as reason:
        raise Refused(f"the application's name is not text: {reason}") from reason
    if not 0 < size <= APPLICATION_BYTES_MAX:
        raise Refused(
            f"the application's name has {size} bytes; 1 to {APPLICATION_BYTES_MAX} are allowed"
        )
    if not 0 <= transaction.version < VERSION_END:
        raise Refused(f"{transaction.version} is not a version: it must be in [0, 2^63)")


def _questions(
    transaction: Transaction, placed: Sequence[PlacedObject]
) -> Iterator[messages.CommitQuestion]:
    """Whole domains, in order, as many to a question as one may hold."""
    by_domain: dict[int, list[tuple[int, bytes]]] = {}
    for one in placed:
        by_domain.setdefault(one.domain, []).append((one.domain, one.commit))
    room = WRITE.question_bytes_max - (APPLICATION_BYTES_MAX + 64)
    some: list[tuple[int, bytes]] = []
    size = 0
    for domain in sorted(by_domain):
        part = by_domain[domain]
        part_bytes = sum(len(commit) + OBJECT_OVERHEAD_BYTES for _, commit in part)
        if part_bytes > RECORD_BYTES_MAX:
            raise Refused(
                f"the objects for domain {domain} take {part_bytes} bytes in its log, and a record"
                f" has {RECORD_BYTES_MAX}: write larger batches, or fewer rows at once"
            )
        if some and size + part_bytes > room:
            yield messages.CommitQuestion(transaction.application, transaction.version, some)
            some, size = [], 0
        some += part
        size += part_bytes
    if some:
        yield messages.CommitQuestion(transaction.application, transaction.version, some)
