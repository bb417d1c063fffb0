"""A domain state as a manifest and its pages, and back. Pure.

The manifest holds what is not about one stream, and the hash of every page; its own hash therefore
stands for the whole state. Two replicas at one position make the same bytes, and a state made from
a checkpoint goes on like the one it was made of (rule 13).
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import msgspec
import numpy as np

from lakelog.domain.envelope import Stamp
from lakelog.domain.pages import GroupPage, Page
from lakelog.domain.state import LEVEL_MAX, DomainState, LastWrite
from lakelog.groups.parts import PendingParts
from lakelog.model.failures import Corrupt
from lakelog.streams.index import link
from lakelog.streams.producers import BATCH_FIELDS, SEQUENCE_END, WINDOW_BATCHES
from lakelog.streams.table import NONE, Columns, Int64s

FORMAT: Final = 1


class PageName(msgspec.Struct, frozen=True, array_like=True):
    """A page by its bucket and the SHA-256 of its bytes."""

    bucket: int
    digest: str
    size_bytes: int


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a checkpoint holds beside its pages.

    What is empty by default is not written, so that a checkpoint without groups, writes or parts
    has the bytes that it had before there were any.
    """

    format: int
    cluster_id: str
    domain: int
    level: int
    position: int
    horizon_ms: int
    expired_producer_max: int
    writers: tuple[tuple[str, int, int], ...]
    supported: tuple[tuple[str, int], ...]
    pages: tuple[PageName, ...]
    group_pages: tuple[PageName, ...] = ()
    writes: tuple[tuple[str, int, int], ...] = ()
    parts: tuple[tuple[str, int, int, tuple[bytes, ...]], ...] = ()


def digest(data: bytes | memoryview) -> str:
    """The name of bytes."""
    return sha256(data).hexdigest()


def make_manifest(
    state: DomainState, pages: Sequence[PageName], group_pages: Sequence[PageName] = ()
) -> Manifest:
    """The manifest of a state whose pages have these names."""
    return Manifest(
        format=FORMAT,
        cluster_id=state.cluster_id,
        domain=state.domain,
        level=state.level,
        position=state.position,
        horizon_ms=state.horizon_ms,
        expired_producer_max=state.producers.expired_max,
        writers=tuple(
            (name, stamp.incarnation, stamp.number) for name, stamp in sorted(state.writers.items())
        ),
        supported=tuple(sorted(state.supported.items())),
        pages=tuple(sorted(pages, key=lambda page: page.bucket)),
        group_pages=tuple(sorted(group_pages, key=lambda page: page.bucket)),
        writes=tuple((name, *last) for name, last in sorted(state.writes.items())),
        parts=tuple((name, *pending) for name, pending in sorted(state.parts.items())),
    )


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest's bytes."""
    return msgspec.msgpack.encode(manifest)


def decode_manifest(data: bytes | memoryview) -> Manifest:
    """The manifest; one of a newer version is refused by name."""
    try:
        manifest = msgspec.msgpack.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"the checkpoint's manifest cannot be read: {error}") from None
    if manifest.format != FORMAT or manifest.level > LEVEL_MAX:
        raise Corrupt(
            f"the checkpoint has format {manifest.format} and level {manifest.level};"
            f" this version knows format {FORMAT} and levels up to {LEVEL_MAX}"
        )
    return manifest


def assemble(
    manifest: Manifest, pages: Sequence[Page], group_pages: Sequence[GroupPage] = ()
) -> DomainState:
    """The state that a checkpoint stands for."""
    state = DomainState()
    state.cluster_id = manifest.cluster_id
    state.domain = manifest.domain
    state.level = manifest.level
    state.position = manifest.position
    state.horizon_ms = manifest.horizon_ms
    state.writers = {name: Stamp(*stamp) for name, *stamp in manifest.writers}
    state.supported = dict(manifest.supported)
    state.writes = {name: LastWrite(*last) for name, *last in manifest.writes}
    state.parts = {
        name: PendingParts(attempt, of, data) for name, attempt, of, data in manifest.parts
    }
    state.producers.expired_max = manifest.expired_producer_max
    if pages:
        _add_streams(state, pages)
        _add_entries(state, pages, _add_objects(state, pages))
        _add_producers(state, pages)
    for group_page in group_pages:
        for group, offsets in group_page.groups:
            state.groups.restore(group, offsets)
    return state


def _add_streams(state: DomainState, pages: Sequence[Page]) -> None:
    columns = state.streams.columns
    columns.extend(sum(len(page.topics) for page in pages))
    for name in pages[0].streams:
        columns[name][:] = np.concatenate([page.streams[name] for page in pages])
    columns["entry"][:] = NONE
    columns["producer"][:] = NONE
    state.streams.topics = [topic for page in pages for topic in page.topics]
    state.streams.row_of = {int(stream): row for row, stream in enumerate(columns["id"])}


def _add_objects(state: DomainState, pages: Sequence[Page]) -> list[Int64s]:
    """One row for every object, whatever number of pages name it; the rows by page and place."""
    labels = sorted({name for page in pages for name in page.names})
    number = {label: at for at, label in enumerate(labels)}
    table = {
        name: np.concatenate([page.objects[name] for page in pages]) for name in pages[0].objects
    }
    table["zone"] = np.concatenate(
        [
            np.array([number[name] for name in page.names], dtype=np.int64)[page.objects["zone"]]
            for page in pages
        ]
    )
    identity = [table[name] for name in ("zone", "low", "high", "kind")]
    order = np.lexsort(identity)
    differs = np.zeros(len(order), dtype=np.bool_)
    differs[:1] = True
    for column in identity:
        differs[1:] |= column[order][1:] != column[order][:-1]
    rows = np.empty(len(order), dtype=np.int64)
    rows[order] = np.cumsum(differs) - 1
    firsts = order[differs]
    state.objects.restore({name: values[firsts] for name, values in table.items()}, labels)
    return np.split(rows, np.cumsum([len(page.objects["kind"]) for page in pages])[:-1])


def _add_entries(state: DomainState, pages: Sequence[Page], places: list[Int64s]) -> None:
    columns = state.index.columns
    counts = np.concatenate([page.entry_counts for page in pages])
    columns.extend(int(counts.sum()))
    for name in pages[0].entries:
        if name != "object":
            columns[name][:] = np.concatenate([page.entries[name] for page in pages])
    columns["object"][:] = np.concatenate(
        [rows[page.entries["object"]] for page, rows in zip(pages, places, strict=True)]
    )
    stream_rows = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    columns["stream"][:] = stream_rows
    link(columns, state.streams, stream_rows)


def _add_producers(state: DomainState, pages: Sequence[Page]) -> None:
    producers = state.producers
    counts = np.concatenate([page.producer_counts for page in pages])
    total = int(counts.sum())
    _fill(producers.columns, pages, ("producer", "epoch", "time_ms"), total)
    _fill(producers.windows, pages, BATCH_FIELDS, total)
    producers.columns["stream"][:] = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    newest = producers.windows["first"][:, -1] + producers.windows["count"][:, -1]
    producers.columns["next"][:] = newest % SEQUENCE_END
    producers.columns["newest"][:] = WINDOW_BATCHES - 1
    producers.relabel()


def _fill(columns: Columns, pages: Sequence[Page], names: Sequence[str], rows: int) -> None:
    columns.extend(rows)
    for name in names:
        columns[name][:] = np.concatenate([page.producers[name] for page in pages])
