"""From an address to a connection that may be used: TCP, TLS, versions, credentials.

Rules: all of it has one time limit (`socket.connection.setup.timeout.ms`); whatever fails, nothing
stays open, and the failure says who was asked and what happened. Where a broker lets a session live
for a limited time, the credentials are shown again before it ends, on the same connection
(KIP-368).
"""

import asyncio
import os
import socket
import ssl
from dataclasses import dataclass, field
from typing import Final

import lakelog
from lakelog.client.authentication import authenticate, stay_authenticated
from lakelog.client.connection import Connection
from lakelog.client.endpoint import Endpoint
from lakelog.client.failures import BrokerError, Unreachable
from lakelog.client.settings import ClientSettings
from lakelog.client.tls import tls_context, tls_failure
from lakelog.clock import Entropy, Tasks
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import APIS, ApiKey
from lakelog.wire.framing import SCRATCH_BYTES, FrameLimits
from lakelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

SOFTWARE: Final = ApiVersionsRequest("lakelog", lakelog.__version__)
FRAME_BYTES_MIN: Final = 4


@dataclass(frozen=True, slots=True)
class Dialer:
    """Makes connections to the brokers of one cluster; what they share is here."""

    settings: ClientSettings
    entropy: Entropy
    tasks: Tasks  # the parent of what keeps a session alive
    tls: ssl.SSLContext | None = None
    # One for all: the loops that a client runs on never read two sockets at the same time.
    scratch: bytearray = field(default_factory=lambda: bytearray(SCRATCH_BYTES), repr=False)

    @classmethod
    def load(cls, settings: ClientSettings, *, entropy: Entropy, tasks: Tasks) -> "Dialer":
        """A dialer for these settings; reads certificates. Raises BadConfig."""
        return cls(settings, entropy, tasks, tls_context(settings))

    async def connect(self, endpoint: Endpoint, *, timeout_s: float | None = None) -> Connection:
        """A connection that may be used.

        Raises Unreachable, Untrusted, AuthenticationFailed or Unsupported.
        """
        limit_s = self.settings.socket_connection_setup_timeout_ms / 1000
        limit_s = limit_s if timeout_s is None else min(limit_s, timeout_s)
        connection = Connection(
            endpoint,
            client_id=self.settings.client_id,
            timeout_s=self.settings.socket_timeout_ms / 1000,
            scratch=self.scratch,
        )
        stage = _Stage("taken the connection")
        try:
            async with asyncio.timeout(limit_s):
                await self._set_up(connection, stage, limit_s)
        except TimeoutError:
            failure = Unreachable(f"{endpoint} has not {stage.awaited} within {limit_s:g} s")
            connection.abort(failure)
            raise failure from None
        except BaseException:
            connection.abort()
            raise
        return connection

    async def _set_up(self, connection: Connection, stage: "_Stage", limit_s: float) -> None:
        opened = await self._open(connection.endpoint, limit_s)
        try:
            stage.awaited = "finished the TLS handshake" if self.tls else "taken the connection"
            await self._attach(connection, opened)
        except BaseException:
            opened.close()
            raise
        stage.awaited = "answered ApiVersions"
        await self._greet(connection)
        if self.settings.has_sasl:
            stage.awaited = "finished the authentication"
            lifetime_s = await authenticate(connection, self.settings, self.entropy)
            if lifetime_s:
                self.tasks.spawn(
                    stay_authenticated(connection, self.settings, self.entropy, lifetime_s),
                    name="re-authentication",
                )

    async def _open(self, endpoint: Endpoint, limit_s: float) -> socket.socket:
        """A TCP connection to the first address of the host that takes one."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as reason:
            raise Unreachable(f"nobody knows the host {endpoint.host!r}: {_why(reason)}") from None
        failures = []
        for left, (family, kind, protocol, _, address) in zip(
            range(len(found), 0, -1), found, strict=True
        ):
            opened = socket.socket(family, kind, protocol)
            try:
                self._prepare(opened)
                async with asyncio.timeout(limit_s / left if left > 1 else None):
                    await loop.sock_connect(opened, address)
            except (OSError, TimeoutError) as reason:
                opened.close()
                failures.append(_why(reason))
            except BaseException:
                opened.close()
                raise
            else:
                return opened
        said = "; ".join(dict.fromkeys(failures)) or "it has no address"
        raise Unreachable(f"nobody answers at {endpoint}: {said}")

    def _prepare(self, opened: socket.socket) -> None:
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.settings.socket_keepalive_enable:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self.settings.socket_receive_buffer_bytes:
            # Before the connection is made: its window is settled in the handshake.
            opened.setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVBUF, self.settings.socket_receive_buffer_bytes
            )

    async def _attach(self, connection: Connection, opened: socket.socket) -> None:
        """Put the protocol, and TLS if there is any, on a TCP connection."""
        endpoint = connection.endpoint
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: connection,
                sock=opened,
                ssl=self.tls,
                server_hostname=endpoint.host if self.tls is not None else None,
            )
        except ssl.SSLError as reason:
            raise tls_failure(endpoint, reason) from None
        except (OSError, UnicodeError, ValueError) as reason:
            raise Unreachable(
                f"{endpoint} ended the TLS handshake ({_why(reason)}): "
                "does it listen for another security.protocol?"
            ) from None

    async def _greet(self, connection: Connection) -> None:
        """Learn what the broker speaks: asked in our newest version, then in the oldest."""
        newest = APIS[ApiKey.API_VERSIONS].versions.stop - 1
        found = await connection.send(SOFTWARE, ApiVersionsResponse, version=newest)
        if found.error_code == ErrorCode.UNSUPPORTED_VERSION:
            found = await connection.send(SOFTWARE, ApiVersionsResponse, version=0)
        if found.error_code:
            raise BrokerError(found.error_code, f"ApiVersions of {connection.endpoint}")
        versions = {
            each.api_key: range(each.min_version, each.max_version + 1) for each in found.api_keys
        }
        limits = FrameLimits(FRAME_BYTES_MIN, self.settings.frame_bytes_max)
        connection.greeted(versions, limits)


@dataclass(slots=True)
class _Stage:
    """What is being waited for, for the text of a time-out."""

    awaited: str


def _why(reason: BaseException) -> str:
    if isinstance(reason, TimeoutError):
        return "no answer in time"
    if isinstance(reason, OSError) and reason.errno and not isinstance(reason, socket.gaierror):
        return os.strerror(reason.errno)  # the loops have words of their own
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return str(reason) or type(reason).__name__
