"""What the matrix asks of a client, whatever language it is written in."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from tests.compat.check import Seen
from tests.compat.corpus import Ability, Record

# No record for this long means that none will come.
SILENCE_S = 30.0


class MissingError(RuntimeError):
    """The client cannot be had on this machine; the message says why."""


class Producing(Protocol):
    """A client that writes."""

    name: str
    ability: Ability
    notes: Sequence[str]

    def prepare(self) -> None:
        """Find or fetch the client; raise MissingError where that cannot be."""

    def write(self, bootstrap: str, topic: str, records: Sequence[Record]) -> None:
        """Write all records in order and return when all are acknowledged."""


class Consuming(Protocol):
    """A client that reads by assignment."""

    name: str
    codecs: Sequence[str]
    notes: Sequence[str]

    def prepare(self) -> None:
        """Find or fetch the client; raise MissingError where that cannot be."""

    def read(
        self, bootstrap: str, topic: str, expected: Mapping[int, Sequence[Record]]
    ) -> Iterator[Seen]:
        """Read every partition from its start until as many records came as are expected."""
