"""What clients of the Iceberg REST protocol send, read strictly. Pure.

Names come percent-encoded, a space also as `+`. Levels of a namespace are joined by the unit
separator, and a name with one is that of no namespace here. Whatever cannot be read is a 400 with
the reason.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec

from lakelog.http.iceberg_errors import bad_request

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
