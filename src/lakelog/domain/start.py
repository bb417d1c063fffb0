"""The start of a replica: is the metadata log as long as it once was, and who writes (A5, rule 15)?

What proves a loss: a milestone that is ahead of the log or that the log contradicts, a checkpoint
beyond the log's end, an object store without milestone, checkpoint or any object that is named.

What is only suspected: WAL objects that are newer than all that the log ever named. A crash
between a put and its commit leaves a few, a job that dies before its write leaves any number. So
they count only where no milestone vouches for the log (an earlier version wrote it), and only
when they are many and lie further apart than whatever is in flight at one moment.

Nothing is written to the log before it was judged: a start that is refused may be repeated for
ever and stays refused.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from lakelog.clock import Clock
from lakelog.domain.checkpoint_store import CheckpointStore
from lakelog.domain.commit_event import Commit, Write
from lakelog.domain.envelope import DomainRecord, Stamp, decode_record, encode_record
from lakelog.domain.events import Event, Genesis
from lakelog.domain.milestone import (
    Milestone,
    Milestones,
    Timeline,
    contradiction,
    load_timeline,
    newest,
    when,
)
from lakelog.domain.options import DomainOptions
from lakelog.domain.state import LEVEL_MAX, DomainState
from lakelog.meta import keys
from lakelog.meta.port import MetadataLog, MetadataStore
from lakelog.model.failures import Conflict, Refused
from lakelog.model.ids import DomainId, WalId
from lakelog.objects.port import ObjectStore
from lakelog.streams.objects import WalName
from lakelog.telemetry import event
from lakelog.wal.layout import object_key, parse_object_key, wal_id_time_ms

UNNAMED_MAX: Final = 64
"""So many WAL objects without a commit are no reason for anything: four are put at a time, and
some wait for their place in the log."""

UNNAMED_SPAN_MS: Final = 5 * 60 * 1000
"""… and neither are more of them, when they were all closed within this: a put is given up after
two minutes, so what was in flight at one moment is closer together."""

_OLD_COPY: Final = "the metadata store went back in time (an old copy?). Restore its newest copy"
_FOUNDER: Final = "genesis"
_log = logging.getLogger("lakelog.domain")


@dataclass(frozen=True, slots=True)
class UnnamedObjects:
    """WAL objects that are newer than everything the log names, and named ones that are gone."""

    keys: tuple[str, ...]
    start_ms: int
    end_ms: int
    missing: int
    present: int

    def is_suspicious(self) -> bool:
        """Whether they are more than a crash leaves behind."""
        return len(self.keys) > UNNAMED_MAX and self.end_ms - self.start_ms > UNNAMED_SPAN_MS

    def __str__(self) -> str:
        said = "no WAL object"
        if self.keys:
            said = (
                f"{len(self.keys)} WAL objects closed from {when(self.start_ms)} to"
                f" {when(self.end_ms)} ({self.keys[0]} to {self.keys[-1]})"
            )
        gone = f"; {self.missing} objects that it names are gone" if self.missing else ""
        return f"{said}{gone}"


class StartCheck:
    """Compares the log of one domain with what the object store knows of it."""

    def __init__(
        self,
        store: MetadataStore,
        objects: ObjectStore,
        milestones: Milestones,
        clock: Clock,
        options: DomainOptions,
        *,
        domain: int,
    ) -> None:
        self._store = store
        self._objects = objects
        self._milestones = milestones
        self._clock = clock
        self._options = options
        self._domain = domain
        self._log: MetadataLog = store.log(keys.domain_log(domain))
        self._found: list[Milestone] = []
        self._reached = 0
        self._timeline = Timeline()
        self._version = 0

    async def look(self, checkpoints: CheckpointStore) -> None:
        """Read what the object store knows, before the log, which can only grow meanwhile.

        The timeline comes after the milestones: another broker may accept a loss just now.
        """
        self._found = await self._milestones.load()
        self._reached = await checkpoints.highest_trace()
        self._timeline, self._version = await load_timeline(self._store, self._domain)

    async def judge(self, state: DomainState) -> Timeline:
        """The timeline to go on with; `Refused` when something is lost and that is not accepted."""
        proof = await self._proof(state)
        unnamed = None
        if proof is None and not self._found:
            # Nothing vouches for the log: an earlier version wrote it, or it is about to begin.
            unnamed = await self._unnamed(state)
            proof = self._suspicion(unnamed)
        if proof is None:
            if self._options.accept_lost_metadata:
                event(_log, "nothing_lost", logging.WARNING, hint="leave out accept_lost_metadata")
            return self._timeline
        loss = f"{self._positions(state)}{unnamed or await self._unnamed(state)}"
        if not self._options.accept_lost_metadata:
            raise Refused(_refusal(self._domain, state.position, proof, loss))
        return await self._accept(state, loss)

    async def explained(self, reason: Refused) -> Refused:
        """Why a state cannot be loaded, told with what else is known of it."""
        end = (await self._log.read(after=0)).end
        ahead = max([self._reached, *(found.position for found in self._found)])
        if ahead <= max(end, self._timeline.reached):
            return reason
        return Refused(
            f"the log of domain {self._domain} ends at {end}, but it once reached {ahead}: the"
            " metadata store went back in time (an old copy?), so far that what it refers to is"
            f" gone ({reason}). Restore its newest copy"
        )

    async def _proof(self, state: DomainState) -> str | None:
        furthest = newest(self._found)
        record = ""
        if furthest is not None and furthest.position <= state.position:
            record = await self._milestones.record_at(furthest.position)
        proof = contradiction(self._found, self._timeline, state, record)
        if proof is None and self._reached > max(state.position, self._timeline.reached):
            proof = f"a checkpoint or an earlier start noted that it had reached {self._reached}"
        if proof is not None:
            return f"{proof}: {_OLD_COPY}"
        return None

    def _suspicion(self, unnamed: UnnamedObjects) -> str | None:
        if unnamed.missing and not unnamed.present and not self._reached:
            return (
                f"{self._objects.url} holds nothing of it: the object store was wiped, or is"
                " another one. Restore the objects"
            )
        if unnamed.is_suspicious():
            return f"the object store holds more than a crash leaves behind: {_OLD_COPY}"
        return None

    def _positions(self, state: DomainState) -> str:
        reached = max([self._reached, *(found.position for found in self._found)])
        is_known = reached > state.position
        return f"positions {state.position + 1} to {reached}; " if is_known else ""

    async def _accept(self, state: DomainState, loss: str) -> Timeline:
        now_ms = self._clock.now_ms()
        numbers = [self._timeline.number, *(found.timeline for found in self._found)]
        reached = [state.position, self._reached, *(found.position for found in self._found)]
        timeline = Timeline(
            number=max(numbers) + 1,
            start=state.position,
            reached=max(reached),
            accepted_ms=now_ms,
            sweep_after_ms=now_ms + self._options.rescue_ms,
        )
        try:
            value = msgspec.json.encode(timeline)
            await self._store.put(keys.timeline(self._domain), value, expect=self._version)
        except Conflict:
            timeline, _ = await load_timeline(
                self._store, self._domain
            )  # another broker was quicker
        event(
            _log,
            "lost_metadata_accepted",
            logging.ERROR,
            domain=self._domain,
            timeline=timeline.number,
            lost=loss,
            sweep_after=when(timeline.sweep_after_ms),
        )
        return timeline

    async def _unnamed(self, state: DomainState) -> UnnamedObjects:
        """What lies in the store and is newer than all that the log names or ever named."""
        listed: dict[str, WalId] = {}
        async for info in self._objects.list("wal/v1/"):
            place = parse_object_key(info.key)
            if place is not None and place.domain == self._domain:
                listed[info.key] = place.wal_id
        named = wal_keys(state)
        last = max([b"", *await self._committed(), *named.values()])
        newer = sorted((wal_id, key) for key, wal_id in listed.items() if wal_id > last)
        times_ms = [wal_id_time_ms(wal_id) for wal_id, _ in newer] or [0]
        return UnnamedObjects(
            tuple(key for _, key in newer),
            times_ms[0],
            times_ms[-1],
            missing=sum(key not in listed for key in named),
            present=sum(key in listed for key in named),
        )

    async def _committed(self) -> list[WalId]:
        """The ids in all commits that the log still holds: what compaction let go of is known."""
        ids: list[WalId] = []
        after = 0
        while True:
            page = await self._log.read(after=after)
            for data in page.records:
                record = decode_record(data, level_max=LEVEL_MAX)
                ids += [commit.wal_id for commit in _commits(record.events)]
            after = page.start + len(page.records) - 1
            if not page.records or after >= page.end:
                return ids


def wal_keys(state: DomainState) -> dict[str, WalId]:
    """The WAL objects that index entries name, by their keys."""
    named = {}
    for row in state.index.referenced().tolist():
        name = state.objects.name(row)
        if isinstance(name, WalName):
            named[object_key(name.zone, DomainId(state.domain), name.wal_id)] = name.wal_id
    return named


def _commits(events: Sequence[Event]) -> Iterator[Commit]:
    for each in events:
        if isinstance(each, Commit):
            yield each
        elif isinstance(each, Write):
            yield from each.commits


def _refusal(domain: int, end: int, proof: str, loss: str) -> str:
    return (
        f"the log of domain {domain} ends at {end}, but {proof}. Lost would be {loss}. To go on"
        " without that, start once with --accept-lost-metadata: the offsets that were lost are"
        " then given to other records"
    )


async def win_incarnation(store: MetadataStore, writer: str) -> int:
    """A number that no process had before under this name, and that is greater than all of them."""
    key = keys.incarnation(writer)
    while True:
        found = await store.get(key)
        mine = int(found.value) + 1 if found else 1
        try:
            await store.put(key, b"%d" % mine, expect=found.version if found else 0)
        except Conflict:
            continue
        return mine


async def found_log(log: MetadataLog, *, cluster_id: str, domain: int, allowed: bool) -> None:
    """Write Genesis; where two brokers do, the second is a repeat that means nothing."""
    if not allowed:
        raise Refused(
            f"the log of domain {domain} is empty although the cluster exists:"
            " the metadata store was wiped or is another one (rule 15)"
        )
    genesis = Genesis(cluster_id, domain, LEVEL_MAX)
    await log.append(encode_record(DomainRecord(_FOUNDER, Stamp(0, 0), LEVEL_MAX, (genesis,))))
