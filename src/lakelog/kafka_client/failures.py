"""What can go wrong between a client and a Kafka, named for what the caller does next. Pure.

Rules: everything a client library raises on purpose is a `ClientFailure`; its text says who was
asked, what happened and, where it is known, what to change. No text shows a password. A failure
keeps its arguments, so that it survives the way from one process to another.

Who connects with the wrong security.protocol only sees nonsense or a connection that ends; how far
the conversation came tells which of the settings to look at (`foreign_protocol`, `hung_up`).
"""

import difflib
from collections.abc import Iterable
from typing import Final

from lakelog.model.errors import RETRIABLE, ErrorCode
from lakelog.model.failures import Failure


class ClientFailure(Failure):
    """The base of every failure of a client library."""


class BadConfig(ClientFailure):
    """A key of the configuration, or its value, means nothing here."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(key, reason)
        self.key = key
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.key}: {self.reason}"

    @classmethod
    def unknown(cls, key: str, known: Iterable[str]) -> "BadConfig":
        """The failure for a key that nobody knows, with the nearest that somebody does."""
        near = difflib.get_close_matches(key, sorted(known), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return cls(key, f"there is no such setting{hint}")


class Unreachable(ClientFailure):
    """Nobody answers there, or what answers is no Kafka broker.

    `is_final` says that asking again cannot help: the address or the protocol is wrong.
    """

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


class TimedOut(ClientFailure):
    """What was asked for did not come within its time; it may still have been done."""


class AuthenticationFailed(ClientFailure):
    """The broker does not accept who we say we are, or is not who it says: asking again is vain."""


class Untrusted(ClientFailure):
    """TLS failed: a certificate is not trusted, names another host, or cannot be read."""


class UnknownTopic(ClientFailure):
    """The cluster has no such topic."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return f"there is no topic {self.topic!r}"


class BrokerError(ClientFailure):
    """A broker answered with an error code."""

    def __init__(self, code: int, about: str = "", message: str | None = None) -> None:
        super().__init__(code, about, message)
        self.code = code
        self.about = about
        self.message = message

    @property
    def name(self) -> str:
        """The code's name in the protocol."""
        return error_name(self.code)

    @property
    def is_retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code in RETRIABLE

    def __str__(self) -> str:
        said = f"{self.name}: {self.message}" if self.message else self.name
        return f"{self.about}: {said}" if self.about else said


class Unsupported(ClientFailure):
    """The broker and this client have no version of an API in common."""

    def __init__(self, api: str, reason: str = "") -> None:
        super().__init__(api, reason)
        self.api = api
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.api}: {self.reason or 'no version that both sides speak'}"


class OffsetGone(ClientFailure):
    """The offset to read from is no longer, or not yet, in the log, which is [start, end)."""

    def __init__(self, topic: str, partition: int, offset: int, start: int, end: int) -> None:
        super().__init__(topic, partition, offset, start, end)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.start = start
        self.end = end

    def __str__(self) -> str:
        return (
            f"{self.topic} [{self.partition}] has no offset {self.offset}: the log holds "
            f"[{self.start}, {self.end}). Choose with auto.offset.reset (earliest, latest), or seek"
        )


class CorruptBatch(ClientFailure):
    """A batch does not have the checksum it was written with, also when it was fetched again."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(topic, partition, offset)
        self.topic = topic
        self.partition = partition
        self.offset = offset

    def __str__(self) -> str:
        return f"{self.topic} [{self.partition}]: the batch at offset {self.offset} is corrupt"


class Closed(ClientFailure):
    """It was used after its end, or ended while it was being used."""


def error_name(code: int) -> str:
    """The protocol's name of an error code, also of one that is newer than this client."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


_TLS_RECORDS: Final = (b"\x15\x03", b"\x16\x03")  # an alert, a handshake
_GREETINGS: Final = {
    b"HTTP": "speaks HTTP: that is not the port of a Kafka broker",
    b"SSH-": "speaks SSH: that is not the port of a Kafka broker",
    b"220 ": "speaks SMTP or FTP: that is not the port of a Kafka broker",
    b"-ERR": "speaks Redis: that is not the port of a Kafka broker",
}


def foreign_protocol(received: memoryview, count: int) -> str:
    """What speaks, and what to do about it; empty for what may be Kafka."""
    head = bytes(received[: min(count, 4)])
    if head[:2] in _TLS_RECORDS:
        return "speaks TLS: set security.protocol to SSL or SASL_SSL"
    return _GREETINGS.get(head, "")


def hung_up(*, at_api: str, answers: int, has_tls: bool, reason: Exception | None) -> str:
    """A connection that ended by itself after so many answers, while this API was asked."""
    if answers > 1:
        hint = ""
    elif answers == 1:
        hint = ": does it ask for credentials (security.protocol=SASL_...)?"
    elif has_tls:
        hint = ": does it want a certificate of ours (ssl.certificate.location)?"
    else:
        hint = ": does it listen for another security.protocol?"
    at = f" at {at_api}" if at_api else ""
    why = f" ({reason})" if reason is not None and str(reason) else ""
    return f"closed the connection{at}{why}{hint}"


def no_common_version(ours: range, theirs: range) -> str:
    """Why an API cannot be spoken."""
    if not theirs:
        return "does not offer it"
    return (
        f"speaks versions {theirs.start} to {theirs.stop - 1}, "
        f"this client {ours.start} to {ours.stop - 1}"
    )
