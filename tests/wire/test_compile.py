"""Every message in every version, against two other implementations and against hostile hands."""

import random
from typing import Any

import pytest
from msgspec import Struct
from tests.wire.kafka_python import message_classes
from tests.wire.kio_oracle import KioSamples, kio_bytes
from tests.wire.samples import messages

from lakelog.wire.codec import decode, encode
from lakelog.wire.compile import decoder, encoder
from lakelog.wire.messages.api_versions import ApiVersionsResponse
from lakelog.wire.messages.heartbeat import HeartbeatRequest
from lakelog.wire.schema import ProtocolError

SAMPLES = 3


def versions_by_message() -> dict[type[Struct], list[int]]:
    found: dict[type[Struct], list[int]] = {}
    for kind, version in messages():
        found.setdefault(kind, []).append(version)
    return found


VERSIONS = versions_by_message()
every_message = pytest.mark.parametrize("kind", VERSIONS, ids=lambda kind: kind.__name__)


def joined(message: Struct, version: int) -> bytes:
    return b"".join(encode(message, version))


@every_message
def test_kio_writes_what_we_read_and_we_write_what_kio_writes(kind: type[Struct]) -> None:
    for version in VERSIONS[kind]:
        samples = KioSamples(random.Random(f"{kind.__name__}{version}"), kind, version)
        for _ in range(SAMPLES):
            message = samples.message()
            written = kio_bytes(message, version)
            found, position = decode(kind, version, memoryview(written))
            assert found == message, version
            assert position == len(written), version
            assert joined(found, version) == written, version


@every_message
def test_kafka_python_reads_what_we_write(kind: type[Struct]) -> None:
    other: Any = message_classes().get(kind.__name__)
    if other is None or kind is ApiVersionsResponse:
        return  # it does not know the message, or reads errors in it as version 0
    for version in VERSIONS[kind]:
        samples = KioSamples(random.Random(f"{kind.__name__}{version}"), kind, version)
        for _ in range(SAMPLES):
            written = joined(samples.message(), version)
            found = other.decode(written, version=version)
            found.with_header()  # without one some of its classes cannot be encoded
            assert found.encode() == written, version


@every_message
def test_a_message_cut_short_anywhere_is_refused(kind: type[Struct]) -> None:
    for version in VERSIONS[kind]:
        samples = KioSamples(random.Random(f"cut {kind.__name__}{version}"), kind, version)
        written = joined(samples.message(), version)
        # Every cut of the first bytes, then some: the tail of a long message repeats itself.
        for cut in (*range(min(len(written), 100)), *range(100, len(written), 37)):
            with pytest.raises(ProtocolError):
                decode(kind, version, memoryview(written)[:cut])


@every_message
def test_defaults_make_a_message_that_can_be_sent(kind: type[Struct]) -> None:
    for version in VERSIONS[kind]:
        found, _ = decode(kind, version, memoryview(joined(kind(), version)))
        assert joined(found, version) == joined(kind(), version), version


def test_a_codec_is_compiled_once() -> None:
    assert decoder(HeartbeatRequest, 4) is decoder(HeartbeatRequest, 4)
    assert encoder(HeartbeatRequest, 4) is encoder(HeartbeatRequest, 4)


def test_a_version_that_does_not_exist_has_no_codec() -> None:
    assert decoder(HeartbeatRequest, 5) is None
    assert encoder(HeartbeatRequest, -1) is None
