"""What the group APIs share: who asks, how an answer is awaited, how much a request may name."""

from collections.abc import Callable, Sized
from typing import TYPE_CHECKING, Final, TypeVar

from lakelog.broker.call import Answer, Call, CloseConnection, Later

if TYPE_CHECKING:
    import asyncio

NAMED_MAX: Final = 25_000
"""The most groups or members of one request: each costs an answer, and two megabytes of a hostile
request can name a million."""

Result = TypeVar("Result")


def check_named(named: Sized) -> None:
    """Close the connection of a client that names more groups or members than one request may."""
    if len(named) > NAMED_MAX:
        raise CloseConnection(f"{len(named)} names in one request; at most {NAMED_MAX}")


def client_id(call: Call) -> str:
    """The client's id as members are shown with it; a null one is the empty one."""
    return call.client_id or ""


def client_host(call: Call) -> str:
    """The client's address in the form that Kafka shows it (row 75)."""
    return f"/{call.client_host}"


def answered(work: "asyncio.Future[Result]", finish: Callable[[Result], Answer]) -> Answer | Later:
    """The answer `finish(await work)`: at once if the work is done, else later.

    What the coordinator was asked has its place in the log by now, so the connection's next
    request may begin (K11).
    """
    return finish(work.result()) if work.done() else Later(work, finish)
