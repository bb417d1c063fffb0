"""Kafka's own console producer and console consumer, from the jars of the peer."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence

from bench.peer import Peer, PeerAbsentError, find_peer
from tests.compat.check import Seen
from tests.compat.clients import MissingError
from tests.compat.corpus import CODECS, Ability, Headers, Record, blocks

TIMEOUT_S = 300.0
SEPARATOR, PAIR_SEPARATOR, NULL, END = "<~field~>", "<~pair~>", "<~null~>", "<~end~>"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


class JavaTool:
    """A program of Kafka's that runs on the peer's jars."""

    def __init__(self) -> None:
        self._peer: Peer | None = None

    def prepare(self) -> None:
        """Find Java and the jars, or fetch them."""
        try:
            self._peer = find_peer()
        except PeerAbsentError as absent:
            raise MissingError(str(absent)) from absent

    def run(self, main_class: str, arguments: Sequence[str], stdin: bytes = b"") -> bytes:
        """Run the program and return what it printed."""
        assert self._peer is not None, "prepare() comes first"
        done = subprocess.run(
            self._peer.command(main_class, *arguments, heap="512m"),
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode or b"ERROR" in done.stderr:
            raise RuntimeError(done.stderr.decode(errors="replace")[-600:])
        return done.stdout


class ConsoleProducer(JavaTool):
    """The Java producer with its default settings: idempotent, acks=all."""

    name = "java console"
    ability = Ability(binary=False, timestamps=False, partitions=False)
    notes: Sequence[str] = ()

    def write(self, bootstrap: str, topic: str, records: Sequence[Record]) -> None:
        """Write all records in order and return when all are acknowledged."""
        properties = {
            "parse.key": "true",
            "parse.headers": "true",
            "key.separator": SEPARATOR,
            "headers.delimiter": SEPARATOR,
            "headers.separator": PAIR_SEPARATOR,
            "headers.key.separator": ":",
            "null.marker": NULL,
        }
        for codec, block in blocks(records):
            arguments = ["--bootstrap-server", bootstrap, "--topic", topic]
            arguments += ["--compression-codec", codec]
            for name, value in properties.items():
                arguments += ["--reader-property", f"{name}={value}"]
            self.run(PRODUCER, arguments, b"".join(line(record) for record in block))


def line(record: Record) -> bytes:
    """Return a record as the console producer reads it."""
    pairs = PAIR_SEPARATOR.encode().join(
        name.encode() + b":" + or_null(value) for name, value in record.headers
    )
    fields = (pairs or NULL.encode(), or_null(record.key), or_null(record.value))
    return SEPARATOR.encode().join(fields) + b"\n"


def or_null(value: bytes | None) -> bytes:
    """Return a value, or the marker that stands for null."""
    return NULL.encode() if value is None else value


class ConsoleConsumer(JavaTool):
    """The Java consumer, one partition at a time; it prints bytes as they are."""

    name = "java console"
    codecs: Sequence[str] = CODECS
    notes: Sequence[str] = (
        "java console consumer: fields come between separators that no record contains",
    )

    def read(
        self, bootstrap: str, topic: str, expected: Mapping[int, Sequence[Record]]
    ) -> Iterator[Seen]:
        """Read every partition from its start until as many records came as are expected."""
        properties = {
            **dict.fromkeys(("print.timestamp", "print.partition", "print.offset"), "true"),
            **dict.fromkeys(("print.headers", "print.key", "print.value"), "true"),
            "key.separator": SEPARATOR,
            "headers.separator": PAIR_SEPARATOR,
            "line.separator": END,
            "null.literal": NULL,
        }
        for partition, records in expected.items():
            arguments = ["--bootstrap-server", bootstrap, "--topic", topic]
            arguments += ["--partition", str(partition), "--offset", "earliest"]
            arguments += ["--max-messages", str(len(records)), "--timeout-ms", "30000"]
            for name, value in properties.items():
                arguments += ["--formatter-property", f"{name}={value}"]
            printed = self.run(CONSUMER, arguments)
            for row in printed.split(END.encode())[:-1]:
                yield parse(row)


def parse(row: bytes) -> Seen:
    """Take one printed record apart."""
    timestamp, partition, offset, headers, key, value = row.split(SEPARATOR.encode())
    return Seen(
        int(partition.removeprefix(b"Partition:")),
        int(offset.removeprefix(b"Offset:")),
        from_null(key),
        from_null(value),
        parse_headers(headers),
        int(timestamp.removeprefix(b"CreateTime:")),
    )


def parse_headers(printed: bytes) -> Headers:
    """Take the printed headers apart."""
    if printed == b"NO_HEADERS":
        return ()
    pairs = (pair.partition(b":") for pair in printed.split(PAIR_SEPARATOR.encode()))
    return tuple((name.decode(), from_null(value)) for name, _, value in pairs)


def from_null(printed: bytes) -> bytes | None:
    """Return printed bytes, or None for the marker."""
    return None if printed == NULL.encode() else printed
