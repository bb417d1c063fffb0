"""SASL's client side: PLAIN (RFC 4616) and SCRAM (RFC 5802, 7677), as messages. Pure.

Rules:

- An exchange gives the first message, then an answer to each challenge, then None: only then is the
  other side proven. SCRAM proves both sides: the server's signature is checked.
- What the server sends is hostile until its signature is right: the nonce must begin with ours, and
  the number of iterations is bounded, because each costs us time (Kafka's own bounds are 4096 and
  16384).
- Names and passwords are UTF-8 without normalisation, as Kafka's own clients and brokers do it.
"""

import base64
import binascii
import hashlib
import hmac
from typing import Final, Protocol

from lakelog.kafka_client.failures import AuthenticationFailed

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 65_536
CHALLENGE_BYTES_MAX: Final = 8192
NONCE_BYTES: Final = 24
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_HEADER: Final = "n,,"  # no channel binding, and nobody but ourselves


class Exchange(Protocol):
    """One proof of who we are."""

    def first(self) -> bytes:
        """The message that begins it."""

    def respond(self, challenge: bytes) -> bytes | None:
        """The answer to a challenge, or None at the end; raises AuthenticationFailed."""


class PlainExchange:
    """The password itself: only for connections that are encrypted or trusted."""

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        """The name and the password."""
        return self._message

    def respond(self, challenge: bytes) -> bytes | None:
        """Nothing is asked after that."""
        if challenge:
            raise AuthenticationFailed("PLAIN: the broker asked for more than name and password")
        return None


class ScramExchange:
    """A proof that both sides know the password, which is not sent."""

    def __init__(self, hash_name: str, username: str, password: str, nonce: str) -> None:
        self._hash_name = hash_name
        self._password = password.encode()
        self._nonce = nonce
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={escaped},r={nonce}"
        self._signature: bytes | None = None  # there once the server's proof is awaited
        self._is_proven = False

    def first(self) -> bytes:
        """Our name and our half of the nonce."""
        return (_HEADER + self._first_bare).encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Our proof for the server's half of the nonce; then its own proof is checked."""
        if self._is_proven:
            raise AuthenticationFailed("SCRAM: the broker went on after the end")
        if len(challenge) > CHALLENGE_BYTES_MAX:
            raise AuthenticationFailed("SCRAM: the broker's message is too long")
        try:
            message = challenge.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailed("SCRAM: the broker's message is no UTF-8") from None
        if self._signature is None:
            return self._prove(message)
        self._verify(message, self._signature)
        self._is_proven = True
        return None

    def _prove(self, server_first: str) -> bytes:
        nonce, salt, iterations = parse_server_first(server_first, self._nonce)
        salted = hashlib.pbkdf2_hmac(self._hash_name, self._password, salt, iterations)
        bare = f"c={_base64(_HEADER.encode())},r={nonce}"
        signed = f"{self._first_bare},{server_first},{bare}".encode()
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash_name, client_key).digest()
        client_signature = self._hmac(stored_key, signed)
        proof = bytes(a ^ b for a, b in zip(client_key, client_signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{bare},p={_base64(proof)}".encode()

    def _verify(self, server_final: str, signature: bytes) -> None:
        attribute = server_final.partition(",")[0]
        if attribute.startswith("e="):
            raise AuthenticationFailed(f"SCRAM: the broker says {attribute[2:]}")
        if not attribute.startswith("v="):
            raise AuthenticationFailed("SCRAM: the broker's last message has no proof")
        if not hmac.compare_digest(_from_base64(attribute[2:]), signature):
            raise AuthenticationFailed(
                "SCRAM: the broker's proof is wrong: it does not know the password"
            )

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash_name)


def exchange(mechanism: str, username: str, password: str, entropy: bytes) -> Exchange:
    """An exchange by its mechanism; `entropy` is for its nonce and is used once."""
    if mechanism == "PLAIN":
        return PlainExchange(username, password)
    return ScramExchange(HASHES[mechanism], username, password, _base64(entropy))


def parse_server_first(message: str, nonce: str) -> tuple[str, bytes, int]:
    """The whole nonce, the salt and the iterations of a server's first message."""
    if message.startswith("e="):
        raise AuthenticationFailed(f"SCRAM: the broker says {message[2:]}")
    parts = [part.partition("=") for part in message.split(",")]
    # What may follow the three are extensions, and one that is mandatory (m=) would stand first.
    if [name for name, _, _ in parts[:3]] != ["r", "s", "i"]:
        raise AuthenticationFailed("SCRAM: the broker's first message is malformed")
    whole, salt, count = (value for _, _, value in parts[:3])
    if not whole.startswith(nonce) or len(whole) == len(nonce):
        raise AuthenticationFailed("SCRAM: the broker did not extend our nonce")
    digits = count.isascii() and count.isdigit() and len(count) <= 9
    if not digits or not ITERATIONS_MIN <= int(count) <= ITERATIONS_MAX:
        raise AuthenticationFailed(
            f"SCRAM: the broker asks for {count[:20]} iterations; "
            f"{ITERATIONS_MIN} to {ITERATIONS_MAX} are accepted"
        )
    decoded = _from_base64(salt)
    if not decoded:
        raise AuthenticationFailed("SCRAM: the broker sent no salt")
    return whole, decoded, int(count)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AuthenticationFailed("SCRAM: the broker sent bad base64") from None
