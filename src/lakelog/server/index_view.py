"""A partition's offset index as keys and values: a key and an entry for each run. Pure.

The keys are not stored: the index is part of the domain's state. They name it for tools.
"""

from collections.abc import Sequence
from uuid import UUID

from lakelog.log.plan import Piece
from lakelog.meta.keys import ROOT
from lakelog.model.ids import DomainId
from lakelog.streams.objects import FileName, WalName
from lakelog.wal.ids import object_key


def describe(stream: int, domain: int, pieces: Sequence[Piece]) -> list[dict[str, object]]:
    """One row for each index entry, in the order of the offsets."""
    rows = []
    prefix = f"{ROOT}/streams/{stream}/offset-index"
    size_bytes = 0
    for piece in pieces:
        size_bytes += piece.byte_length
        rows.append(
            {
                "key": f"{prefix}/{piece.end:020d}/{size_bytes:020d}",
                "streamId": stream,
                "startOffset": piece.start,
                "endOffset": piece.end,
                "cumulativeSize": size_bytes,
                "recordCount": piece.end - piece.start,
                "maxTimestampMs": piece.max_timestamp_ms,
                "chunkOffset": piece.byte_start,
                "chunkLength": piece.byte_length,
                **_file(piece, DomainId(domain)),
            }
        )
    return rows


def _file(piece: Piece, domain: DomainId) -> dict[str, object]:
    match piece.name:
        case WalName(wal_id=wal_id, zone=zone):
            return {
                "fileType": "WAL",
                "walId": str(UUID(bytes=bytes(wal_id))),
                "path": object_key(zone, domain, wal_id),
            }
        case FileName(kind=kind, key=key):
            return {"fileType": kind.name, "path": key}
