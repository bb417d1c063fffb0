"""What parked requests are answered with, from the state of their group (K1). Pure values."""

import msgspec

from lakelog.model.errors import ErrorCode


class JoinAnswer(msgspec.Struct, frozen=True):
    """The answer to a JoinGroup; `members` (id, instance id, metadata) only for the leader."""

    code: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


class SyncAnswer(msgspec.Struct, frozen=True):
    """The answer to a SyncGroup."""

    code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""
