"""Questions in msgpack over HTTP, answered: what all such pages share.

A question is a POST. Whether it may be asked is checked before a byte of its body is read, and a
body has a limit. A failure travels as what it is: `Unavailable` promises that nothing was written.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lakelog.http.pipeline_messages import CONTENT_TYPE, FailureAnswer, told
from lakelog.model.failures import Failure

Answer: TypeAlias = Callable[[bytes], Awaitable[object]]
"""Makes the answer to a body; raises what `told` can tell, or msgspec's errors for nonsense."""

Check: TypeAlias = Callable[[Request], Awaitable[None]]
"""Raises what speaks against answering the request at all."""

QuestionT = TypeVar("QuestionT")


@dataclass(frozen=True, slots=True)
class Asking:
    """How the questions below one path are answered."""

    path: str
    question_bytes_max: int
    check: Check | None = None

    def routes(self, answers: Mapping[str, Answer]) -> list[BaseRoute]:
        """A route for each question, by its name."""
        return [self._route(name, answer) for name, answer in answers.items()]

    def _route(self, name: str, answer: Answer) -> Route:
        async def endpoint(request: Request) -> Response:
            return await self._answered(request, answer)

        return Route(self.path + name, endpoint, methods=["POST"])

    async def _answered(self, request: Request, answer: Answer) -> Response:
        try:
            if self.check is not None:
                await self.check(request)
            return _response(200, await answer(await self._body(request)))
        except Failure as failure:
            status, said = told(failure)
            return _response(status, said)
        except _TooLarge:
            return _response(413, FailureAnswer("refused", "the question is too large"))
        except ClientDisconnect:
            return _response(400, FailureAnswer("refused", "the question never ended"))
        except msgspec.MsgspecError as reason:
            return _response(400, FailureAnswer("refused", f"not a question: {reason}"))

    async def _body(self, request: Request) -> bytes:
        parts = []
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > self.question_bytes_max:
                raise _TooLarge
            parts.append(part)
        return b"".join(parts)


class _TooLarge(Exception):  # noqa: N818 - reads as what happened
    """A body beyond the limit."""


def question_in(body: bytes, kind: type[QuestionT]) -> QuestionT:
    """The question; raises msgspec's errors, which are told to whoever asked."""
    return msgspec.msgpack.decode(body, type=kind)


def _response(status: int, answer: object) -> Response:
    body = msgspec.msgpack.encode(answer)
    return Response(body, status_code=status, media_type=CONTENT_TYPE)
