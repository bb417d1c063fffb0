"""kcat (librdkafka 2.0.2 in Debian: an old client that newcomers try first)."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from tests.compat.check import Seen
from tests.compat.clients import MissingError
from tests.compat.corpus import (
    CODECS,
    Ability,
    HeaderFreedom,
    Headers,
    Record,
    blocks,
    by_partition,
)

TIMEOUT_S = 300.0
# Sequences of bytes that no record contains.
END_OF_RECORD = b"<~end~>"
END_OF_KEY = b"<~key~>"
HEADERS_AS_TEXT = (
    "kcat consumer: prints headers as one text (name=value,..., null as NULL, a value only up to"
    " its first zero byte) and is compared in that form; keys and values by length and bytes"
)
FORMAT = "%o %T %K %S %k%s%h" + END_OF_RECORD.decode()


def find_kcat() -> None:
    """Find kcat, or install Debian's package where that is allowed."""
    if shutil.which("kcat") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(
            ["apt-get", "install", "--yes", "kcat"], check=False, capture_output=True, timeout=300
        )
    if shutil.which("kcat") is None:
        raise MissingError("no kcat on the path (Debian package kcat)")


class KcatProducer:
    """kcat -P: headers are the same for a whole run, so each codec is a run with its own."""

    ability = Ability(headers=HeaderFreedom.PER_RUN, timestamps=False, empty_beside_null=False)
    notes: Sequence[str] = ()

    def __init__(self, *, idempotent: bool = False) -> None:
        self.name = "kcat idempotent" if idempotent else "kcat"
        self._settings = ["-X", "enable.idempotence=true"] if idempotent else []

    def prepare(self) -> None:
        """Find kcat, or install it."""
        find_kcat()

    def write(self, bootstrap: str, topic: str, records: Sequence[Record]) -> None:
        """Write all records in order and return when all are acknowledged."""
        for codec, block in blocks(records):
            for partition, mine in by_partition(block).items():
                for nulls, run in runs_of_nulls(mine):
                    command = ["kcat", "-P", "-b", bootstrap, "-t", topic, "-p", str(partition)]
                    command += ["-z", codec, "-D", END_OF_RECORD.decode()]
                    command += ["-K", END_OF_KEY.decode(), *self._settings]
                    command += [argument for each in run[0].headers for argument in header(*each)]
                    if nulls:
                        command.append("-Z")
                    stdin = END_OF_RECORD.join(line(record, nulls=nulls) for record in run)
                    done = subprocess.run(
                        command, input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False
                    )
                    if done.returncode:
                        raise RuntimeError(done.stderr.decode(errors="replace")[-400:])


def runs_of_nulls(records: Sequence[Record]) -> Iterator[tuple[bool, list[Record]]]:
    """Yield the records in runs for -Z (empty means null) and without it (empty means empty)."""
    run: list[Record] = []
    nulls = False
    for record in records:
        wants_null = record.value is None
        wants_empty = record.key == b"" or record.value == b""
        if run and ((wants_null and not nulls) or (wants_empty and nulls)):
            yield nulls, run
            run = []
        if not run:
            nulls = wants_null
        run.append(record)
    if run:
        yield nulls, run


def header(name: str, value: bytes | None) -> tuple[str, str]:
    """Return the arguments for one header; no `=` makes a null value."""
    return ("-H", name if value is None else f"{name}={value.decode()}")


def line(record: Record, *, nulls: bool) -> bytes:
    """Return a record as kcat reads it.

    A line without the key delimiter has a null key; with -Z an empty key is null, too. kcat drops
    lines that are empty altogether.
    """
    key = record.key or b""
    delimiter = END_OF_KEY if nulls or record.key is not None else b""
    return key + delimiter + (record.value or b"")


class KcatConsumer:
    """kcat -C with a format that carries lengths, so that binary and null are told apart."""

    name = "kcat"
    codecs: Sequence[str] = CODECS
    notes: Sequence[str] = (HEADERS_AS_TEXT,)

    def prepare(self) -> None:
        """Find kcat, or install it."""
        find_kcat()

    def read(
        self, bootstrap: str, topic: str, expected: Mapping[int, Sequence[Record]]
    ) -> Iterator[Seen]:
        """Read every partition from its start to its end."""
        for partition, records in expected.items():
            command = ["kcat", "-C", "-b", bootstrap, "-t", topic, "-p", str(partition)]
            command += ["-o", "beginning", "-e", "-q", "-f", FORMAT]
            done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
            if done.returncode:
                raise RuntimeError(done.stderr.decode(errors="replace")[-400:])
            yield from parse(done.stdout, partition, records)


def parse(printed: bytes, partition: int, expected: Sequence[Record]) -> Iterator[Seen]:
    """Cut kcat's output into records by the lengths in it."""
    position = 0
    while position < len(printed):
        fields = []
        for _ in range(4):
            end = printed.index(b" ", position)
            fields.append(int(printed[position:end]))
            position = end + 1
        offset, timestamp_ms, key_bytes, value_bytes = fields
        key = printed[position : position + max(key_bytes, 0)]
        position += len(key)
        value = printed[position : position + max(value_bytes, 0)]
        position += len(value)
        end = printed.index(END_OF_RECORD, position)
        rendered = printed[position:end]
        position = end + len(END_OF_RECORD)
        headers: Headers = (("as printed", rendered),)
        if offset < len(expected) and rendered == render(expected[offset].headers):
            headers = expected[offset].headers
        yield Seen(
            partition,
            offset,
            None if key_bytes < 0 else key,
            None if value_bytes < 0 else value,
            headers,
            timestamp_ms,
        )


def render(headers: Headers) -> bytes:
    """Return headers as kcat prints them."""
    return b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else value.partition(b"\0")[0])
        for name, value in headers
    )
