"""SASL on a connection: at its beginning, and again before the session's time is over (KIP-368).

Rules: the mechanism is announced with SaslHandshake 1, its messages travel in SaslAuthenticate. A
broker that refuses raises AuthenticationFailed; a broker that cannot prove itself is left.
"""

import asyncio
from typing import Final

from lakelog.client.connection import Connection
from lakelog.client.failures import AuthenticationFailed, ClientFailure, Unsupported, error_name
from lakelog.client.sasl import NONCE_BYTES, exchange
from lakelog.client.settings import ClientSettings
from lakelog.clock import Entropy
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
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


async def authenticate(connection: Connection, settings: ClientSettings, entropy: Entropy) -> float:
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
    connection: Connection, settings: ClientSettings, entropy: Entropy, lifetime_s: float
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


async def _handshake(connection: Connection, mechanism: str) -> None:
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
