"""Errors as the Iceberg REST protocol says them, and which failure becomes which.

Engines act on code and type. A 409 makes a client delete what it wrote for the commit, so only a
definite no is one; a commit whose outcome nobody knows is `CommitStateUnknownException`, after
which nothing is deleted.
"""

from typing import Final

from starlette.responses import JSONResponse, Response

from lakelog.catalog.guard import Malformed
from lakelog.model.failures import (
    Conflict,
    Failure,
    NotFound,
    Refused,
    Unavailable,
)

MESSAGE_CHARACTERS_MAX: Final = 1_000

_COMMIT: Final[tuple[tuple[type[Failure], int, str], ...]] = (
    (Malformed, 400, "BadRequestException"),
    (Refused, 403, "ForbiddenException"),
    (NotFound, 404, "NoSuchTableException"),
    (Conflict, 409, "CommitFailedException"),
    (Unavailable, 503, "ServiceUnavailableException"),
)
"""Failures after which a table is certainly as it was."""


class IcebergError(Exception):
    """An answer that is an error: its HTTP code, its name in the protocol, and the reason."""

    def __init__(self, code: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.kind = kind
        self.message = message[:MESSAGE_CHARACTERS_MAX]

    def response(self) -> Response:
        """The protocol's ErrorModel."""
        error = {"message": _printable(self.message), "type": self.kind, "code": self.code}
        return JSONResponse({"error": error}, status_code=self.code)


def bad_request(message: str) -> IcebergError:
    """What was sent is not understood."""
    return IcebergError(400, "BadRequestException", message)


def forbidden(message: str) -> IcebergError:
    """It is understood and not done."""
    return IcebergError(403, "ForbiddenException", message)


def no_namespace(namespace: str) -> IcebergError:
    """There is no such namespace."""
    message = f"Namespace does not exist: {namespace[:200]!r}"
    return IcebergError(404, "NoSuchNamespaceException", message)


def no_table(namespace: str, table: str) -> IcebergError:
    """There is no such table.

    Also where the namespace is not there: engines then look whether the last part is the name of
    a metadata table, as in `namespace.table.snapshots`.
    """
    message = f"Table does not exist: {namespace[:200]!r}.{table[:300]!r}"
    return IcebergError(404, "NoSuchTableException", message)


def unsupported(message: str, *, code: int = 406) -> IcebergError:
    """This catalog has no such thing."""
    return IcebergError(code, "UnsupportedOperationException", message)


def of_read(failure: Failure | TimeoutError) -> IcebergError:
    """A failure of a read, of which the client knows that nothing changed."""
    if isinstance(failure, Unavailable | TimeoutError):
        reason = str(failure) or "the stores took too long"
        return IcebergError(503, "ServiceUnavailableException", reason)
    return IcebergError(500, "InternalServerError", str(failure))


def of_commit(failure: Failure) -> IcebergError:
    """A failure of a commit; what is not listed may have changed something."""
    for kind, code, name in _COMMIT:
        if isinstance(failure, kind):
            return IcebergError(code, name, str(failure))
    return IcebergError(500, "CommitStateUnknownException", str(failure))


def _printable(text: str) -> str:
    """What JSON can hold: lone surrogates come from names that are no text."""
    return text.encode(errors="replace").decode()
