"""What the Iceberg REST protocol says: requests read strictly, errors, and access to files.

Names come percent-encoded, a space also as `+`. Levels of a namespace are joined by the unit
separator, and a name with one is that of no namespace here. Whatever cannot be read is a 400 with
the reason.

Engines act on an error's code and type. A 409 makes a client delete what it wrote for the commit,
so only a definite no is one; a commit whose outcome nobody knows is `CommitStateUnknownException`,
after which nothing is deleted.

Where the object store is, everybody may know. Its keys are sent only when the operator turned that
on, and then only to a client that asks for them with
`X-Iceberg-Access-Delegation: vended-credentials`.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import unquote_to_bytes, urlsplit

import msgspec
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


NAME_CHARACTERS_MAX: Final = 500
PAGE_ITEMS: Final = 1_000
"""The size of a page when the client names none; it gives no more, whatever is asked for."""

T = TypeVar("T")


def path_segments(raw_path: bytes) -> tuple[str, ...]:
    """The parts of a path, each decoded by itself: an encoded slash separates nothing."""
    return tuple(_decoded(part) for part in raw_path.strip(b"/").split(b"/"))


def _decoded(part: bytes) -> str:
    try:
        text = unquote_to_bytes(part.replace(b"+", b" ")).decode()
    except UnicodeDecodeError as error:
        raise bad_request(f"a part of the path is not UTF-8: {part[:100]!r}") from error
    if len(text) > NAME_CHARACTERS_MAX:
        raise bad_request(f"a part of the path is longer than {NAME_CHARACTERS_MAX} characters")
    return text


@dataclass(frozen=True, slots=True)
class Paging:
    """Which part of a list is asked for: what comes after a name, and how much of it."""

    after: str | None
    count: int | None
    """None for everything that there is."""


def paging(query: Mapping[str, str]) -> Paging:
    """Read `pageToken` and `pageSize`; a client that sends neither gets everything at once."""
    token, size = query.get("pageToken"), query.get("pageSize")
    count = None if token is None and size is None else PAGE_ITEMS
    if size is not None:
        if not (size.isascii() and size.isdigit() and len(size) <= 9 and int(size) > 0):
            raise bad_request(f"pageSize is a positive number, not {size[:50]!r}")
        count = min(int(size), PAGE_ITEMS)
    return Paging(_name_in(token) if token else None, count)


def page(names: Sequence[str], asked: Paging) -> tuple[list[str], str | None]:
    """The names of one page, of all of them in their order, and the token of the next page."""
    left = [name for name in names if asked.after is None or name > asked.after]
    if asked.count is None or len(left) <= asked.count:
        return left, None
    shown = left[: asked.count]
    return shown, base64.urlsafe_b64encode(shown[-1].encode()).decode()


def _name_in(token: str) -> str:
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise bad_request("pageToken is none of ours") from error


class Identifier(msgspec.Struct):
    """A table as a body names it."""

    namespace: list[str]
    name: str


class CommitRequest(msgspec.Struct):
    """A change of a table: what must hold, and what to do."""

    requirements: list[dict[str, object]]
    updates: list[dict[str, object]]
    identifier: Identifier | None = None


class MetricsReport(msgspec.Struct):
    """What an engine measured: nothing of it is kept."""

    report_type: str = msgspec.field(name="report-type")


def parse(body: bytes, kind: type[T]) -> T:
    """The body as this kind of request."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise bad_request(f"the body is not what it should be: {error}") from error


_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "endpoint": ("s3.endpoint",),
    "endpoint_url": ("s3.endpoint",),
    "region": ("s3.region", "client.region"),
    "default_region": ("s3.region", "client.region"),
    "access_key_id": ("s3.access-key-id",),
    "secret_access_key": ("s3.secret-access-key",),
    "session_token": ("s3.session-token",),
    "token": ("s3.session-token",),
}
"""Iceberg's properties for the settings of S3, which may begin with `aws_` too."""

_SECRETS: Final = frozenset(("s3.access-key-id", "s3.secret-access-key", "s3.session-token"))
_TRUE: Final = frozenset(("1", "true", "yes", "on", "y"))
_DELEGATION: Final = "vended-credentials"


@dataclass(frozen=True, slots=True)
class VendOptions:
    """What engines are told, in Iceberg's names, and whether the keys are part of it."""

    vend: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)

    def public(self) -> dict[str, str]:
        """Where the store is, without any key."""
        return {name: text for name, text in self.properties.items() if name not in _SECRETS}

    def told(self, delegation: str) -> tuple[dict[str, str], bool]:
        """The properties for a client that sent this header, and whether keys are in them."""
        wanted = {part.strip().lower() for part in delegation.split(",")}
        if self.vend and _DELEGATION in wanted and not _SECRETS.isdisjoint(self.properties):
            return dict(self.properties), True
        return self.public(), False


def vend_options(url: str, options: Mapping[str, str], *, vend: bool) -> VendOptions:
    """What to tell of the object store at this URL, opened with these settings of obstore."""
    if urlsplit(url).scheme not in ("s3", "s3a"):
        return VendOptions(vend=vend)
    settings = {name.lower().removeprefix("aws_"): text for name, text in options.items()}
    properties: dict[str, str] = {}
    for name, told_as in _NAMES.items():
        if settings.get(name):
            for told in told_as:
                properties.setdefault(told, settings[name])
    if "s3.endpoint" in properties:
        hosted = settings.get("virtual_hosted_style_request", "").lower() in _TRUE
        properties["s3.path-style-access"] = "false" if hosted else "true"
    return VendOptions(vend=vend, properties=properties)
