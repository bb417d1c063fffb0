"""One request as a handler sees it, the ways a handler may answer, and how it says what it serves.

A connection's requests are handed to their handlers in the order they came; the next one starts
when the handler before it has returned. A handler whose answer takes time returns `Later` as soon
as the request has its place in the log, so that requests overlap while their order holds. Answers
leave in the order of the requests, whatever finishes first (row 97).
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from lakelog.wire.apis import ApiKey

if TYPE_CHECKING:
    import asyncio

    from lakelog.broker.broker import BrokerOptions


class Call(Struct, frozen=True, gc=False):
    """Where a request came from, and when."""

    version: int
    client_id: str | None
    client_host: str
    server_host: str  # the address the client reached us by: what it can reach us by again
    server_port: int
    connection: int  # a number that no other connection of this process has
    arrived_s: float  # on the monotonic clock, when the request's last byte came
    request_bytes: int


class Later(Struct, frozen=True):
    """The answer will be `finish(await work)`; the connection's next request may begin."""

    work: "asyncio.Future[Any] | Coroutine[Any, Any, Any]"
    finish: Callable[[Any], "Answer"] | None = None


class NoAnswer:
    """The request gets no answer: Produce with acks=0 that went well."""


class CloseConnection(Exception):  # noqa: N818 - it says what the session does
    """The protocol's answer to this request is to close the connection."""


Answer: TypeAlias = Struct | NoAnswer

Handler: TypeAlias = Callable[..., Coroutine[Any, Any, Answer | Later]]
"""`handle(broker, call, request)`; each takes the request of its own API."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An API that is served, as the module of its handler names it in `API`."""

    key: ApiKey
    versions: range
    handler: Handler
    offered: Callable[["BrokerOptions"], bool] = lambda _options: True
    """Whether clients are told of it."""
