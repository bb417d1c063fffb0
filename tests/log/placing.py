"""WAL objects as somebody else makes and puts them."""

from collections.abc import Iterable, Mapping

from tests.memory_cluster import MemoryCluster, batch

from lakelog.clock import SeededEntropy
from lakelog.domain.commit_event import Commit
from lakelog.log.buffer import ObjectBuffer, Sealed, seal
from lakelog.log.placed import BatchRule
from lakelog.log.writes import IdempotentWrite
from lakelog.model.ids import DomainId
from lakelog.objects.port import ObjectStore
from lakelog.records.acceptance import AcceptedBatch
from lakelog.records.batch_rows import rows_of
from lakelog.wal.layout import TOKEN_BYTES, make_wal_id, object_key

ENTROPY = SeededEntropy("placing")
RULE = BatchRule(message_bytes_max=1_048_588, is_log_append_time=False)


def made(
    rows: Iterable[tuple[int, AcceptedBatch]], *, now_ms: int, domain: int = 0, zone: str = "other"
) -> Sealed:
    """An object of these batches, each with its stream."""
    streams, batches = zip(*rows, strict=True)
    gathered = ObjectBuffer()
    gathered.add(rows_of(streams, batches))
    return seal(
        gathered,
        wal_id=make_wal_id(now_ms, ENTROPY.token(TOKEN_BYTES)),
        domain=DomainId(domain),
        zone=zone,
        created_ms=now_ms,
    )


async def put(objects: ObjectStore, sealed: Sealed, *, domain: int = 0) -> Commit:
    """Put the object; its Commit."""
    commit = sealed.commit
    key = object_key(commit.zone, DomainId(domain), commit.wal_id)
    await objects.put(key, (sealed.data,))
    return commit


async def placed(cluster: MemoryCluster, *streams: int, values: int = 2, age_ms: int = 0) -> Commit:
    """An object in the store with one batch of so many records for each stream."""
    rows = [(stream, batch(*[b"v"] * values)) for stream in streams]
    return await put(cluster.objects, made(rows, now_ms=cluster.clock.now_ms() - age_ms))


def request(
    *commits: Commit,
    application: str = "job",
    version: int = 0,
    rules: Mapping[int, BatchRule] | None = None,
) -> IdempotentWrite:
    """A write of these objects into domain 0."""
    known = {int(stream): RULE for commit in commits for stream in commit.stream}
    return IdempotentWrite(application, version, {0: commits}, known if rules is None else rules)
