"""A small Kafka client of our own: one connection, one request at a time, any API.

For the command line, health checks and tests. It speaks the newest version that both sides know,
retries nothing, and tells failures apart: nobody there, an answer that does not come, an answer
that makes no sense, an error code.
"""

import asyncio
from typing import Final, TypeVar

from msgspec import Struct

from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Failure
from lakelog.server.options import Address
from lakelog.wire.apis import APIS, Api, ApiKey
from lakelog.wire.framing import RESPONSE_LIMITS, decode_response, encode_request
from lakelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from lakelog.wire.schema import ProtocolError

CONNECT_TIMEOUT_S: Final = 10.0
CALL_TIMEOUT_S: Final = 60.0
SIZE_BYTES: Final = 4

ResponseT = TypeVar("ResponseT", bound=Struct)

_API_BY_REQUEST: Final[dict[type[Struct], Api]] = {api.request: api for api in APIS.values()}


class Unreachable(Failure):
    """No broker answers there."""


class KafkaFailure(Failure):
    """A broker answered with an error code."""

    def __init__(self, code: int, message: str | None = None, *, about: str = "") -> None:
        self.code = code
        try:
            name = ErrorCode(code).name
        except ValueError:
            name = f"error {code}"
        said = f"{name}: {message}" if message else name
        super().__init__(f"{about}: {said}" if about else said)


class Client:
    """One connection to one broker."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, client_id: str
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._client_id = client_id
        self._correlation_id = 0
        self._turn = asyncio.Lock()
        self.versions: dict[int, range] = {}  # what the broker speaks

    @classmethod
    async def connect(
        cls,
        address: Address,
        *,
        client_id: str = "lakelog",
        timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> "Client":
        """Connect and ask what the broker speaks; raises Unreachable."""
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await asyncio.open_connection(address.host, address.port)
                client = cls(reader, writer, client_id=client_id)
                try:
                    await client._learn_versions()
                except BaseException:
                    writer.close()
                    raise
        except TimeoutError:
            raise Unreachable(f"no answer from {address} within {timeout_s:g} s") from None
        except OSError as reason:
            raise Unreachable(f"nobody answers at {address}: {reason.strerror or reason}") from None
        return client

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            return  # the broker went first

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def version(self, key: ApiKey) -> int:
        """The newest version of an API that both sides speak; KafkaFailure if there is none."""
        theirs = self.versions.get(key, range(0))
        common = sorted(set(APIS[key].versions) & set(theirs))
        if not common:
            raise KafkaFailure(ErrorCode.UNSUPPORTED_VERSION, about=APIS[key].name)
        return common[-1]

    async def call(
        self, request: Struct, answer: type[ResponseT], *, timeout_s: float = CALL_TIMEOUT_S
    ) -> ResponseT:
        """Send a request and return its answer."""
        api = _API_BY_REQUEST[type(request)]
        version = self.version(api.key)
        try:
            async with asyncio.timeout(timeout_s), self._turn:
                return await self._exchange(api, version, request, answer)
        except TimeoutError:
            raise Unreachable(f"no answer to {api.name} within {timeout_s:g} s") from None
        except (OSError, EOFError) as reason:
            raise Unreachable(f"the broker closed the connection at {api.name}") from reason
        except ProtocolError as reason:
            raise Unreachable(f"the answer to {api.name} makes no sense: {reason}") from reason

    async def _exchange(
        self, api: Api, version: int, request: Struct, answer: type[ResponseT]
    ) -> ResponseT:
        self._correlation_id += 1
        self._writer.writelines(
            encode_request(api, version, self._correlation_id, self._client_id, request)
        )
        await self._writer.drain()
        size = int.from_bytes(await self._reader.readexactly(SIZE_BYTES), "big", signed=True)
        RESPONSE_LIMITS.check_any(size)
        frame = memoryview(await self._reader.readexactly(size))
        correlation_id, found = decode_response(answer, version, frame)
        if correlation_id != self._correlation_id:
            raise ProtocolError(f"answer {correlation_id} to request {self._correlation_id}")
        return found

    async def _learn_versions(self) -> None:
        """Ask in version 0, which every broker of every age can read."""
        api = APIS[ApiKey.API_VERSIONS]
        try:
            found = await self._exchange(api, 0, ApiVersionsRequest(), ApiVersionsResponse)
        except (ProtocolError, EOFError) as reason:
            raise Unreachable(f"what answers there is no Kafka broker: {reason}") from None
        self.versions = {
            each.api_key: range(each.min_version, each.max_version + 1) for each in found.api_keys
        }
