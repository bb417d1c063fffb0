"""Where a script is played: connections to one broker, and every request with its answer.

A script names its connections; each is opened at its first use and has a client id of its own, so
several connections are several members. A broker may hold back an answer (JoinGroup, SyncGroup):
such a request is sent with `send` and its answer awaited later with `answer`. What depends on time
is not slept for: `until` asks again until the answer is the one that is waited for, and the last
question and answer are the step.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from msgspec import Struct

from lakelog.wire.apis import APIS, Api
from lakelog.wire.codec import encode
from lakelog.wire.framing import decode_response, encode_request
from lakelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from lakelog.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lakelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

ANSWER_S_MAX: Final = 10.0
"""How long an answer may take, and how long `until` asks again."""
AGAIN_S: Final = 0.02
PROBE_MS: Final = 10_000
CREATE_VERSION: Final = 7
METADATA_VERSION: Final = 12

ResponseT = TypeVar("ResponseT", bound=Struct)

_API_BY_REQUEST: Final[dict[type[Struct], Api]] = {api.request: api for api in APIS.values()}


class NoAnswerError(RuntimeError):
    """The broker closed the connection or kept silent."""


@dataclass(frozen=True, slots=True)
class Ask(Generic[ResponseT]):
    """A request in one version, and the kind of its answer."""

    request: Struct
    response: type[ResponseT]
    version: int

    @property
    def api(self) -> Api:
        """The API that is asked."""
        return _API_BY_REQUEST[type(self.request)]


@dataclass(slots=True)
class Step:
    """One request of a script and what was answered."""

    number: int
    connection: str
    api: Api
    version: int
    request: Struct
    request_bytes: bytes
    response: Struct | None = None
    response_bytes: bytes = b""


@dataclass(frozen=True, slots=True)
class Parked(Generic[ResponseT]):
    """A request that was sent; its answer has not been awaited."""

    step: Step
    response: type[ResponseT]
    frame: "asyncio.Future[bytes]"


@dataclass(slots=True)
class Connection:
    """One connection: requests in, answers in the same order."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    client_id: str
    waiting: deque["asyncio.Future[bytes]"] = field(default_factory=deque)
    correlation_id: int = 0
    task: "asyncio.Task[None] | None" = None

    @classmethod
    async def open(cls, host: str, port: int, client_id: str) -> "Connection":
        """Connect, and read answers from then on."""
        reader, writer = await asyncio.open_connection(host, port)
        connection = cls(reader, writer, client_id)
        connection.task = asyncio.create_task(connection.read())
        return connection

    def send(self, ask: Ask[ResponseT]) -> "asyncio.Future[bytes]":
        """Send a request; the frame of its answer comes in the future."""
        self.correlation_id += 1
        self.writer.writelines(
            encode_request(ask.api, ask.version, self.correlation_id, self.client_id, ask.request)
        )
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        return future

    async def read(self) -> None:
        """Hand out answers until the connection ends."""
        try:
            while True:
                size = int.from_bytes(await self.reader.readexactly(4), "big")
                frame = await self.reader.readexactly(size)
                future = self.waiting.popleft()
                if not future.done():
                    future.set_result(frame)
        except (EOFError, OSError):
            for future in self.waiting:
                if not future.done():
                    future.set_exception(NoAnswerError("the broker closed the connection"))

    async def close(self) -> None:
        """Hang up; answers that nobody awaited are forgotten."""
        self.writer.close()
        assert self.task is not None
        await self.task
        for future in self.waiting:
            if future.done() and not future.cancelled():
                future.exception()
        try:
            await self.writer.wait_closed()
        except OSError:
            return  # the broker went first


class Stage:
    """One run of one script against one broker."""

    def __init__(self, name: str, host: str, port: int) -> None:
        self.name = name
        self.steps: list[Step] = []
        self._address = (host, port)
        self._connections: dict[str, Connection] = {}

    def group(self, suffix: str = "") -> str:
        """A group id that no other script uses."""
        return f"{self.name}.{suffix}" if suffix else self.name

    async def ask(self, ask: Ask[ResponseT], on: str = "a") -> ResponseT:
        """One step: a request and its answer."""
        return await self.answer(await self.send(ask, on))

    async def send(self, ask: Ask[ResponseT], on: str = "a") -> Parked[ResponseT]:
        """Begin a step whose answer may be held back."""
        connection = await self._connection(on)
        step = self._step(ask, on)
        self.steps.append(step)
        return Parked(step, ask.response, connection.send(ask))

    async def answer(self, parked: Parked[ResponseT]) -> ResponseT:
        """The answer of a step that was begun."""
        frame = await _in_time(parked.frame, parked.step)
        parked.step.response_bytes = frame
        _, found = decode_response(parked.response, parked.step.version, memoryview(frame))
        parked.step.response = found
        return found

    async def until(
        self,
        ask: Callable[[], Ask[ResponseT]],
        wanted: Callable[[ResponseT], bool],
        on: str = "a",
    ) -> ResponseT:
        """One step: ask again until the answer is wanted, or the time is over."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + ANSWER_S_MAX
        while True:
            found = await self.ask(ask(), on)
            if wanted(found) or loop.time() > deadline_s:
                return found
            self.steps.pop()
            await asyncio.sleep(AGAIN_S)

    async def topic(self, suffix: str, partitions: int) -> tuple[str, bytes]:
        """Make a topic of this script and wait until it is known; its name and id."""
        name = f"{self.name}.{suffix}"
        request = CreateTopicsRequest((CreatableTopic(name, partitions, 1),), timeout_ms=10_000)
        made = await self.ask(Ask(request, CreateTopicsResponse, CREATE_VERSION), "set-up")
        assert made.topics[0].error_code == 0, made
        await self.known(name, partitions)
        return name, made.topics[0].topic_id

    async def known(self, name: str, partitions: int) -> None:
        """Wait until the topic has that many partitions with a leader. Not a step."""
        wanted = MetadataRequest((MetadataRequestTopic(name=name),))
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + ANSWER_S_MAX
        while loop.time() < deadline_s:
            found = await self.unseen(Ask(wanted, MetadataResponse, METADATA_VERSION))
            topic = found.topics[0]
            led = [each for each in topic.partitions if each.leader_id >= 0]
            if topic.error_code == 0 and len(led) == partitions:
                return await self._coordinated(name, partitions)
            await asyncio.sleep(AGAIN_S)
        raise NoAnswerError(f"{name} is not known within {ANSWER_S_MAX:g} s")

    async def _coordinated(self, name: str, partitions: int) -> None:
        """Wait until the coordinator, too, knows of the topic: Kafka tells it a little later."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=f"set-up.{name}",
            member_id="probe",
            rebalance_timeout_ms=PROBE_MS,
            subscribed_topic_names=(name,),
        )
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + ANSWER_S_MAX
        while loop.time() < deadline_s:
            found = await self.unseen(Ask(request, ConsumerGroupHeartbeatResponse, 1))
            given = found.assignment.topic_partitions if found.assignment else ()
            if found.error_code or sum(len(each.partitions) for each in given) == partitions:
                break  # a broker without this protocol has no such delay
            await asyncio.sleep(AGAIN_S)
        leaving = ConsumerGroupHeartbeatRequest(
            group_id=request.group_id, member_id="probe", member_epoch=-1, topic_partitions=None
        )
        await self.unseen(Ask(leaving, ConsumerGroupHeartbeatResponse, 1))

    async def unseen(self, ask: Ask[ResponseT]) -> ResponseT:
        """Ask for set-up; what is asked and answered is not recorded."""
        connection = await self._connection("set-up")
        step = self._step(ask, "set-up")
        frame = await _in_time(connection.send(ask), step)
        return decode_response(ask.response, ask.version, memoryview(frame))[1]

    async def close(self) -> None:
        """Hang up everywhere."""
        for connection in self._connections.values():
            await connection.close()

    def _step(self, ask: Ask[ResponseT], on: str) -> Step:
        number = self.steps[-1].number + 1 if self.steps else 1
        body = b"".join(bytes(part) for part in encode(ask.request, ask.version))
        return Step(number, on, ask.api, ask.version, ask.request, body)

    async def _connection(self, name: str) -> Connection:
        if name not in self._connections:
            self._connections[name] = await Connection.open(*self._address, f"client-{name}")
        return self._connections[name]


async def _in_time(frame: "asyncio.Future[bytes]", step: Step) -> bytes:
    try:
        return await asyncio.wait_for(frame, ANSWER_S_MAX)
    except TimeoutError:
        what = f"step {step.number}, {step.api.name} v{step.version} on {step.connection}"
        raise NoAnswerError(f"no answer to {what} within {ANSWER_S_MAX:g} s") from None
