"""Questions to a cluster over HTTP, from any process: msgpack there and back.

Any broker may be asked, so one that does not answer is followed by the next, and the one that
answered is asked first from then on. Every question may be asked again, on any broker: nothing is
changed by it, or a repeat is harmless. What remains is told apart all the same: `Unavailable` where
no broker can have done anything, `OutcomeUnknown` where one may have.
"""

import asyncio
import http.client
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from lakelog.http.pipeline_messages import CONTENT_TYPE, failure_in
from lakelog.model.failures import Failure, OutcomeUnknown, Refused, Unavailable

_HEADERS: Final = {"Content-Type": CONTENT_TYPE}
_BROKEN: Final = (OSError, http.client.HTTPException)

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class AskLimits:
    """How long questions take and how large an answer may be."""

    threads: int = 2
    connect_s: float = 3.0
    answer_s: float = 30.0
    answer_bytes_max: int = 512 << 20


class Asker:
    """Asks whichever of these brokers (host:port) answers; `serves` says whom the path is for."""

    def __init__(
        self, brokers: Sequence[str], path: str, *, serves: str, limits: AskLimits | None = None
    ) -> None:
        assert brokers, "nobody to ask"
        self._brokers = list(brokers)
        self._path = path
        self._serves = serves
        self._limits = limits or AskLimits()
        self._pool = ThreadPoolExecutor(self._limits.threads, thread_name_prefix="lakelog-ask")
        self._kept = threading.local()
        self._open: set[http.client.HTTPConnection] = set()

    async def close(self) -> None:
        """End the connections and threads."""
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)
        for connection in self._open:
            connection.close()

    async def asked(self, name: str, question: object, kind: type[AnswerT]) -> AnswerT:
        """The answer to a question that changes nothing; raises `Refused` or `Unavailable`."""
        try:
            return await self.asked_for(name, question, kind)
        except OutcomeUnknown as reason:
            raise Unavailable(str(reason)) from reason

    async def asked_for(self, name: str, question: object, kind: type[AnswerT]) -> AnswerT:
        """The answer to what changes something; raises `OutcomeUnknown` too."""
        body = b"" if question is None else msgspec.msgpack.encode(question)
        loop = asyncio.get_running_loop()
        failure: Failure | None = None
        is_unknown = False
        for broker in list(self._brokers):
            try:
                answer = await loop.run_in_executor(self._pool, self._ask, broker, name, body)
                found = msgspec.msgpack.decode(answer, type=kind)
            except (Unavailable, OutcomeUnknown) as reason:
                failure = reason
                is_unknown = is_unknown or isinstance(reason, OutcomeUnknown)
            except msgspec.MsgspecError as reason:
                failure = OutcomeUnknown(f"{broker}: the answer to {name} cannot be read: {reason}")
                is_unknown = True
            else:
                if self._brokers[0] != broker:
                    self._brokers.remove(broker)
                    self._brokers.insert(0, broker)
                return found
        said = f"no broker answers: {failure}"
        raise (OutcomeUnknown(said) if is_unknown else Unavailable(said)) from failure

    def _ask(self, broker: str, name: str, body: bytes) -> bytes:
        """One broker's answer, on a thread; a connection that was kept may have ended."""
        kept = getattr(self._kept, "connections", None)
        if kept is None:
            kept = self._kept.connections = {}
        may_be_done = False
        if broker in kept:
            try:
                return self._exchanged(kept[broker], broker, name, body)
            except _BROKEN:
                self._dropped(kept.pop(broker))
                may_be_done = True
        connection = http.client.HTTPConnection(broker, timeout=self._limits.connect_s)
        self._open.add(connection)
        try:
            connection.connect()
            connection.sock.settimeout(self._limits.answer_s)
            may_be_done = True
            answer = self._exchanged(connection, broker, name, body)
        except _BROKEN as reason:
            self._dropped(connection)
            said = f"{broker} does not answer: {reason!r}"
            raise (OutcomeUnknown(said) if may_be_done else Unavailable(said)) from reason
        except Failure:
            self._dropped(connection)
            raise
        kept[broker] = connection
        return answer

    def _exchanged(
        self, connection: http.client.HTTPConnection, broker: str, name: str, body: bytes
    ) -> bytes:
        connection.request("POST", self._path + name, body, _HEADERS)
        answer = connection.getresponse()
        limit = self._limits.answer_bytes_max
        content = answer.read(limit + 1)
        if len(content) > limit:
            raise http.client.HTTPException(f"an answer of more than {limit} bytes")
        if answer.status == 200:
            return content
        told = failure_in(content)
        if isinstance(told, Refused):
            raise told
        if answer.status == 404 and told is None:
            raise Refused(
                f"http://{broker} is not the HTTP port of a broker that serves {self._serves}"
            )
        said = f"{broker} answered {answer.status}: {told}"
        raise Unavailable(said) if isinstance(told, Unavailable) else OutcomeUnknown(said)

    def _dropped(self, connection: http.client.HTTPConnection) -> None:
        self._open.discard(connection)
        connection.close()
