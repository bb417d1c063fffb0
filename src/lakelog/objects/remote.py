"""S3, GCS and Azure through obstore; `memory:` as well, to test this adapter without a server.

Rules: every call ends within a bounded time, its repeats included; an object is one PUT, without
conditions, and never a multipart upload that could be left open; what comes back is checked for
its length; obstore's long reports become one line. A failed put is `OutcomeUnknown` unless the
server itself says that it refused it.
"""

import asyncio
import importlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from lakelog.clock import Clock, Entropy
from lakelog.model.failures import (
    Corrupt,
    Failure,
    NotFound,
    OutcomeUnknown,
    Refused,
    Unavailable,
)
from lakelog.model.ids import ByteRange
from lakelog.objects.port import Buffer, ObjectInfo, confined, confined_prefix, whole

LIST_CHUNK: Final = 1000
_SAID_CHARACTERS_MAX: Final = 300
_ADDRESSES: Final = ("endpoint", "endpoint_url", "base_url")
"""What names of settings end with whose value is an address: of S3 and Azure, and of GCS."""

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class RemoteLimits:
    """How long a remote store may take; obstore by itself goes on for three minutes."""

    connect_timeout_s: float = 3.0
    request_timeout_s: float = 20.0
    retries: int = 3
    retry_first_pause_s: float = 0.05
    retry_total_s: float = 10.0
    call_total_s: float = 30.0


def open_remote(
    url: str,
    options: Mapping[str, str],
    *,
    clock: Clock,
    entropy: Entropy,
    limits: RemoteLimits | None = None,
) -> "RemoteObjectStore":
    """A store at `s3://bucket/prefix` or the like; `options` are obstore's names of settings.

    Nothing is asked of the server yet: `lakelog.objects.port` does that.
    """
    limits = limits or RemoteLimits()
    try:
        # Here, because only who uses a remote store pays for loading it.
        library = importlib.import_module("obstore")
        stores = importlib.import_module("obstore.store")
    except ImportError as error:
        raise Refused(f"{url}: needs obstore: pip install 'lakelog[remote]'") from error
    settings = dict(options)
    if urlsplit(url).scheme in ("s3", "s3a"):
        # The hash of a payload costs more CPU than sending it; our objects carry their own CRC.
        settings.setdefault("unsigned_payload", "true")
    client = {
        "timeout": timedelta(seconds=limits.request_timeout_s),
        "connect_timeout": timedelta(seconds=limits.connect_timeout_s),
        "allow_http": _is_plain(settings),
    }
    retry = {
        "max_retries": limits.retries,
        "retry_timeout": timedelta(seconds=limits.retry_total_s),
        "backoff": {
            "init_backoff": timedelta(seconds=limits.retry_first_pause_s),
            "max_backoff": timedelta(seconds=limits.retry_total_s / 4),
            "base": 2,
        },
    }
    try:
        if urlsplit(url).scheme == "memory":
            store = stores.from_url("memory:///")
        else:
            store = stores.from_url(url, config=settings, client_options=client, retry_config=retry)
    except (library.exceptions.BaseError, ValueError, TypeError) as error:
        raise Refused(f"{public_url(url)}: {one_line(error)}; check URL and settings") from error
    return RemoteObjectStore(_Backend(library, store, public_url(url)), clock, entropy, limits)


def _is_plain(settings: Mapping[str, str]) -> bool:
    """Whether the user names an address without TLS, by whatever the store calls an address."""
    return any(
        name.lower().endswith(_ADDRESSES) and value.lower().startswith("http://")
        for name, value in settings.items()
    )


@dataclass(frozen=True, slots=True)
class _Backend:
    """obstore, a store of it, and what the store is called."""

    library: Any
    store: Any
    url: str


class RemoteObjectStore:
    """Objects below one prefix of a bucket."""

    def __init__(
        self, backend: _Backend, clock: Clock, entropy: Entropy, limits: RemoteLimits
    ) -> None:
        self._obstore = backend.library
        self._store = backend.store
        self._url = backend.url
        self._clock = clock
        self._entropy = entropy
        self._limits = limits
        self._closed = False
        # obstore raises builtin classes too, where they fit.
        self._errors: tuple[type[Exception], ...] = (
            self._obstore.exceptions.BaseError,
            OSError,
            NotImplementedError,
            ValueError,
        )

    @property
    def url(self) -> str:
        """Where the objects are, for humans; without user, password and query."""
        return self._url

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store the parts as one object by one request, replacing what is there."""
        # The one copy: obstore takes parts too, but a thousand small ones cost it 27 ms.
        content = parts[0] if len(parts) == 1 else b"".join(parts)
        path = confined(key)
        try:
            await self._call(
                key,
                lambda: self._obstore.put_async(self._store, path, content, use_multipart=False),
                writes=True,
            )
        except NotFound:
            raise Unavailable(f"{self._url}: the bucket does not exist") from None

    async def get(self, key: str) -> memoryview:
        """The whole object."""
        path = confined(key)
        return await self._call(key, lambda: self._get(path))

    async def _get(self, key: str) -> memoryview:
        answer = await self._obstore.get_async(self._store, key)
        content = memoryview(await answer.bytes_async())
        if len(content) != answer.meta["size"]:
            raise Corrupt(f"{self._url}/{key}: {len(content)} bytes of {answer.meta['size']} came")
        return content

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """The bytes of each range, in the order asked for; near ones share a request."""
        path = confined(key)
        if not whole(ranges):
            return []
        starts, ends = [span.start for span in ranges], [span.end for span in ranges]
        answers = await self._call(
            key,
            lambda: self._obstore.get_ranges_async(self._store, path, starts=starts, ends=ends),
        )
        views = [memoryview(answer) for answer in answers]
        for span, view in zip(ranges, views, strict=True):
            if len(view) != len(span):
                raise Corrupt(f"{self._url}/{key}: {span} was asked for, {len(view)} bytes came")
        return views

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """The objects whose key begins with `prefix`, in no order."""
        folder = confined_prefix(prefix) or None
        if self._closed:
            raise Unavailable(f"{self._url}: the object store is closed")
        chunks = self._obstore.list(self._store, folder, chunk_size=LIST_CHUNK)
        while True:
            chunk = await self._call(prefix, lambda: anext(chunks, None))
            if chunk is None:
                return
            for found in chunk:
                modified_ms = round(found["last_modified"].timestamp() * 1000)
                yield ObjectInfo(found["path"], found["size"], modified_ms)

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete these objects; those that are gone already are fine."""
        names = [confined(key) for key in keys]
        if not names:
            return
        try:
            await self._call(
                names[0], lambda: self._obstore.delete_async(self._store, names), writes=True
            )
        except NotFound:
            # Some stores stop at the first one that is gone: then one by one.
            for name in names:
                await self._delete_one(name)

    async def _delete_one(self, name: str) -> None:
        try:
            await self._call(
                name, lambda: self._obstore.delete_async(self._store, name), writes=True
            )
        except NotFound:
            return

    async def clock_skew_ms(self) -> int:
        """How far the store's clock is ahead, by the time it gives to a new small object."""
        key = f"probe/clock-{self._entropy.token(8).hex()}"
        before_ms = self._clock.now_ms()
        await self.put(key, [b"clock"])
        after_ms = self._clock.now_ms()
        try:
            found = await self._call(key, lambda: self._obstore.head_async(self._store, key))
        finally:
            await self.delete([key])
        modified: datetime = found["last_modified"]
        # Most stores cut to the second: half of one is the best guess.
        cut_ms = 500 if modified.microsecond == 0 else 0
        return round(modified.timestamp() * 1000) + cut_ms - (before_ms + after_ms) // 2

    async def close(self) -> None:
        """Let the connections go."""
        self._closed = True
        self._store = None

    async def _call(
        self, key: str, call: Callable[[], Awaitable[ResultT]], *, writes: bool = False
    ) -> ResultT:
        place = f"{self._url}/{key}"
        if self._closed:
            raise Unavailable(f"{place}: the object store is closed")
        try:
            async with asyncio.timeout(self._limits.call_total_s):
                return await call()
        except TimeoutError:
            said = f"{place}: no answer within {self._limits.call_total_s:g} s"
            raise (OutcomeUnknown(said) if writes else Unavailable(said)) from None
        except Failure:
            raise
        except self._errors as error:
            raise failure(place, error, writes=writes) from None


_WRONG_RANGE: Final = (
    "416 Range Not Satisfiable",
    "NotPartial",
    "WrongRange",
    "Invalid range",
    "Wanted range starting at",  # Azure answers with the whole object, and obstore sees that
)
_REFUSALS: Final = ("PermissionDeniedError", "UnauthenticatedError", "PermissionError")


def failure(place: str, error: Exception, *, writes: bool) -> Failure:
    """What an error of obstore means to the caller."""
    said = f"{place}: {one_line(error)}"
    text = str(error)
    if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in text:
        return NotFound(f"{place}: no such object")
    if isinstance(error, FileNotFoundError):
        return Unavailable(said)
    if type(error).__name__ in _REFUSALS:
        # The server read the request and answered that it will not do it.
        return Unavailable(said)
    if writes:
        return OutcomeUnknown(said)
    if any(sign in text for sign in _WRONG_RANGE):
        return Corrupt(said)
    return Unavailable(said)


def one_line(error: Exception) -> str:
    """What an error of obstore says, without the report behind it."""
    text = str(error).partition("\n\nDebug source")[0]
    status = re.search(r"non-2xx status code: ([^:\n]*)", text)
    code = re.search(r"<Code>(.*?)</Code>", text, re.DOTALL)
    message = re.search(r"<Message>(.*?)</Message>", text, re.DOTALL)
    if status and code:
        said = f"{status[1]}, {code[1]}" + (f" ({message[1]})" if message else "")
    else:
        said = text.rpartition(" - ")[2]
    return " ".join(said.split())[:_SAID_CHARACTERS_MAX] or type(error).__name__


def public_url(url: str) -> str:
    """The URL without what may be secret in it."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}".rstrip("/") if host else f"{parts.scheme}:"
