"""What is said about a peer that did not do what a Kafka broker does. Pure.

Who connects with the wrong security.protocol only sees nonsense or a connection that ends; how far
the conversation came tells which of the settings to look at.
"""

from typing import Final

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
