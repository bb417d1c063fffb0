"""The two ways in which bytes and messages disagree.

Only `ProtocolError` leaves a decoder, whatever the bytes are.
"""


class ProtocolError(Exception):
    """What the other side sent is not Kafka's protocol: close the connection."""


class EncodeError(Exception):
    """A message of ours does not fit its own schema: a bug, or a value too long for the version."""
