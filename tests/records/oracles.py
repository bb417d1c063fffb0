"""Other programs' readers and writers of record batches, to hold ours against."""

import warnings
from collections.abc import Iterable
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder

from lakelog.records.build import Record
from lakelog.records.codecs import Codec

with warnings.catch_warnings():
    # kafka-python reads its schemas by a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import codec as kafka_codec
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

Row = tuple[int, int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]
"""Offset, timestamp, key, value, headers."""

# kafka-python has gzip and lz4 here; snappy and zstd need packages that nobody else wants.
KAFKA_PYTHON_CODECS = (Codec.NONE, Codec.GZIP, Codec.LZ4)
READERS = {"kafka-python": KafkaPythonBatch, "aiokafka": AiokafkaBatch}
BUILDERS = {"kafka-python": KafkaPythonBuilder, "aiokafka": AiokafkaBuilder}


def read_rows(reader: str, batch: bytes) -> list[Row]:
    """The batch as another program reads it, after it checked the CRC itself."""
    parsed = READERS[reader](bytearray(batch))
    assert parsed.validate_crc()
    return [
        (
            record.offset,
            record.timestamp,
            plain(record.key),
            plain(record.value),
            [(key.encode(), plain(value)) for key, value in record.headers],
        )
        for record in parsed
    ]


def build_elsewhere(builder: str, records: Iterable[Record], codec: int) -> bytes:
    """The batch as another program builds it."""
    made: Any = BUILDERS[builder](
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for offset, record in enumerate(records):
        headers = [(key.decode(), value) for key, value in record.headers]
        made.append(
            offset,
            timestamp=record.timestamp_ms,
            key=record.key,
            value=record.value,
            headers=headers,
        )
    return bytes(made.build())


def plain(data: bytes | memoryview | None) -> bytes | None:
    return None if data is None else bytes(data)


def speaks(program: str, codec: Codec) -> bool:
    """Whether the program can read and write this codec here."""
    return program != "kafka-python" or codec in KAFKA_PYTHON_CODECS


__all__ = ["BUILDERS", "READERS", "Row", "build_elsewhere", "kafka_codec", "read_rows", "speaks"]
