"""From an address to a connection that may be used: TCP, TLS, versions, credentials, retries.

Rules:

- All of it has one time limit (`socket.connection.setup.timeout.ms`); whatever fails, nothing stays
  open, and the failure says who was asked and what happened.
- A SASL mechanism is announced with SaslHandshake 1, its messages travel in SaslAuthenticate. A
  broker that refuses raises AuthenticationFailed; a broker that cannot prove itself is left.
- Where a broker lets a session live for a limited time, the credentials are shown again before it
  ends, on the same connection (KIP-368).
- A `BrokerLink` is one broker's connection for all who ask: the one that lives, or the next when
  it is gone. After a failure the next attempt waits, longer each time, with chance in it. A
  connection that ended soon after it began counts as a failure too, so that a broker that takes
  everybody and drops everybody is not stormed.
"""

import asyncio
import os
import socket
import ssl
from dataclasses import dataclass, field
from typing import Final

import lakelog
from lakelog.clock import Clock, Entropy, SystemEntropy, Tasks
from lakelog.kafka_client.connection import BrokerConnection
from lakelog.kafka_client.failures import (
    AuthenticationFailed,
    BrokerError,
    ClientFailure,
    Closed,
    Unreachable,
    Unsupported,
    error_name,
)
from lakelog.kafka_client.sasl import NONCE_BYTES, exchange
from lakelog.kafka_client.setting_keys import BrokerAddress
from lakelog.kafka_client.settings import ClientSettings
from lakelog.kafka_client.tls import tls_context, tls_failure
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import APIS, ApiKey
from lakelog.wire.framing import SCRATCH_BYTES, FrameLimits
from lakelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from lakelog.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from lakelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

HANDSHAKE_VERSION: Final = 1  # version 0 is followed by messages without a frame
MESSAGES_MAX: Final = 8
LEAST_PERCENT: Final = 85
SPREAD_PERCENT: Final = 10
"""Of a session's life, before the credentials are shown again: 85 to 95, as Kafka's clients."""


async def authenticate(
    connection: BrokerConnection, settings: ClientSettings, entropy: Entropy
) -> float:
    """Prove who we are, and let the broker prove itself where the mechanism can.

    Returns the seconds that the session may live, 0 for no limit. Raises AuthenticationFailed.
    """
    mechanism = settings.sasl_mechanism
    await _handshake(connection, mechanism)
    steps = exchange(
        mechanism, settings.sasl_username, settings.sasl_password, entropy.token(NONCE_BYTES)
    )
    message: bytes | None = steps.first()
    version = connection.version(ApiKey.SASL_AUTHENTICATE)
    lifetime_ms = 0
    for _ in range(MESSAGES_MAX):
        if message is None:
            return lifetime_ms / 1000
        answer = await connection.send_now(
            SaslAuthenticateRequest(message), SaslAuthenticateResponse, version
        )
        if answer.error_code:
            said = answer.error_message or error_name(answer.error_code)
            raise AuthenticationFailed(
                f"{connection.endpoint} refuses {settings.sasl_username!r} ({mechanism}): {said}"
            )
        lifetime_ms = answer.session_lifetime_ms
        message = steps.respond(bytes(answer.auth_bytes))
    raise AuthenticationFailed(f"{connection.endpoint} does not come to an end with {mechanism}")


async def stay_authenticated(
    connection: BrokerConnection, settings: ClientSettings, entropy: Entropy, lifetime_s: float
) -> None:
    """Show the credentials again before each session ends, for as long as the connection lives."""
    while lifetime_s > 0:
        percent = LEAST_PERCENT + entropy.below(SPREAD_PERCENT + 1)
        if await connection.wait_lost(lifetime_s * percent / 100):
            return
        connection.hold()
        try:
            lifetime_s = await authenticate(connection, settings, entropy)
        except ClientFailure as failure:
            connection.abort(failure)
            return
        except asyncio.CancelledError:
            connection.abort()
            raise
        connection.release()


async def _handshake(connection: BrokerConnection, mechanism: str) -> None:
    try:
        connection.version(ApiKey.SASL_HANDSHAKE)
        connection.version(ApiKey.SASL_AUTHENTICATE)
    except Unsupported as reason:
        raise AuthenticationFailed(
            f"{connection.endpoint} takes no credentials ({reason}): is security.protocol right?"
        ) from None
    answer = await connection.send_now(
        SaslHandshakeRequest(mechanism), SaslHandshakeResponse, HANDSHAKE_VERSION
    )
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(answer.mechanisms) or "none"
        raise AuthenticationFailed(
            f"{connection.endpoint} does not offer {mechanism}; it offers: {offered}"
        )
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationFailed(
            f"{connection.endpoint} asks for no credentials: is security.protocol right?"
        )
    if answer.error_code:
        raise AuthenticationFailed(
            f"{connection.endpoint} refuses {mechanism}: {error_name(answer.error_code)}"
        )


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

    async def connect(
        self, endpoint: BrokerAddress, *, timeout_s: float | None = None
    ) -> BrokerConnection:
        """A connection that may be used.

        Raises Unreachable, Untrusted, AuthenticationFailed or Unsupported.
        """
        limit_s = self.settings.socket_connection_setup_timeout_ms / 1000
        limit_s = limit_s if timeout_s is None else min(limit_s, timeout_s)
        connection = BrokerConnection(
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

    async def _set_up(self, connection: BrokerConnection, stage: "_Stage", limit_s: float) -> None:
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

    async def _open(self, endpoint: BrokerAddress, limit_s: float) -> socket.socket:
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

    async def _attach(self, connection: BrokerConnection, opened: socket.socket) -> None:
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

    async def _greet(self, connection: BrokerConnection) -> None:
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


class BrokerLink:
    """One broker's connection, made when it is needed."""

    def __init__(self, dialer: Dialer, clock: Clock, closing: "asyncio.Future[None]") -> None:
        self._dialer = dialer
        self._clock = clock
        self._closing = closing  # done when the cluster is closed
        self._turn = asyncio.Lock()
        self._connection: BrokerConnection | None = None
        self._began_s = 0.0
        self._failures = 0  # in a row
        self._not_before_s = 0.0

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that may be used."""
        return self._connection is not None and self._connection.is_open

    async def connection(self, endpoint: BrokerAddress) -> BrokerConnection:
        """The connection to this address; raises what `Dialer.connect` raises, or Closed."""
        async with self._turn:
            current = self._connection
            if current is not None:
                if current.is_open and current.endpoint == endpoint:
                    return current
                self._drop(current)
            await self._wait()
            return await self._dial(endpoint)

    async def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    def _drop(self, ended: BrokerConnection) -> None:
        """Forget a connection that is over, or that leads to where the broker was."""
        ended.abort()
        self._connection = None
        settled_s = self._dialer.settings.reconnect_backoff_max_ms / 1000
        if self._clock.monotonic_s() - self._began_s < settled_s:
            self._failed()
        else:
            self._failures = 0

    def _failed(self) -> None:
        self._failures += 1
        delay_s = self._dialer.settings.reconnect_backoff.delay_s(
            self._failures, self._dialer.entropy
        )
        self._not_before_s = self._clock.monotonic_s() + delay_s

    async def _wait(self) -> None:
        delay_s = self._not_before_s - self._clock.monotonic_s() if self._failures else 0.0
        if delay_s > 0:
            await asyncio.wait([self._closing], timeout=delay_s)
        if self._closing.done():
            raise Closed("the client was closed")

    async def _dial(self, endpoint: BrokerAddress) -> BrokerConnection:
        try:
            made = await self._dialer.connect(endpoint)
        except ClientFailure:
            self._failed()
            raise
        if self._closing.done():
            made.abort()
            raise Closed("the client was closed")
        self._began_s = self._clock.monotonic_s()
        self._connection = made
        return made


async def dial(
    server: str, *, client_id: str = "lakelog", timeout_s: float | None = None
) -> BrokerConnection:
    """One connection to one broker without security, for what needs no cluster.

    Raises what `Dialer.connect` raises.
    """
    settings = ClientSettings.parse({"bootstrap.servers": server, "client.id": client_id})
    dialer = Dialer(settings, SystemEntropy(), Tasks())
    return await dialer.connect(settings.bootstrap_servers[0], timeout_s=timeout_s)


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
