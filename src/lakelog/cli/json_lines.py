"""Records as JSON, one a line, so that what is printed can be read back without loss. Pure.

    {"topic": "t", "partition": 0, "offset": 7, "timestamp": 1700000000000,
     "key": "k", "value": {"base64": "/wA="}, "headers": [["h", "v"], ["h", null]]}

Text stands as text where the bytes are UTF-8, else as `{"base64": …}`; null is null. Headers are
pairs in their order, so that a name may come twice. On the way back only key, value, headers,
timestamp and partition count; each may be missing.
"""

import base64
import binascii
import json
from typing import Final

from lakelog.records.build import Record

NO_TIMESTAMP_MS: Final = -1
FIELDS: Final = frozenset({"topic", "partition", "offset", "timestamp", "key", "value", "headers"})


class LineError(ValueError):
    """A line is no record; the text says why."""


def render(record: Record, *, topic: str, partition: int, offset: int) -> str:
    """One line, without its end."""
    return json.dumps(
        {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timestamp": record.timestamp_ms,
            "key": _shown(record.key),
            "value": _shown(record.value),
            "headers": [[_shown(name), _shown(value)] for name, value in record.headers],
        },
        ensure_ascii=False,
    )


def parse(line: str) -> tuple[Record, int | None]:
    """The record of a line and its partition, if it names one; raises LineError."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as reason:
        raise LineError(f"not JSON: {reason}") from None
    if not isinstance(found, dict):
        raise LineError("not a JSON object")
    unknown = sorted(set(found) - FIELDS)
    if unknown:
        raise LineError(f"no field of a record: {', '.join(unknown)}")
    timestamp_ms = _integer(found.get("timestamp"), "timestamp")
    record = Record(
        _read(found.get("key"), "key"),
        _read(found.get("value"), "value"),
        NO_TIMESTAMP_MS if timestamp_ms is None else timestamp_ms,
        _headers(found.get("headers")),
    )
    return record, _integer(found.get("partition"), "partition")


def _shown(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _read(value: object, name: str) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise LineError(f"{name}: half a surrogate pair is no text") from None
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError) as reason:
            raise LineError(f"{name}: not base64: {reason}") from None
    raise LineError(f'{name}: needs a text, null or {{"base64": "…"}}')


def _headers(value: object) -> tuple[tuple[bytes, bytes | None], ...]:
    if value is None:
        return ()
    if isinstance(value, dict):
        value = [[name, each] for name, each in value.items()]
    if not isinstance(value, list):
        raise LineError("headers: needs a list of pairs")
    found = []
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2:
            raise LineError("headers: needs a list of pairs")
        name = _read(pair[0], "headers")
        if name is None:
            raise LineError("headers: a name cannot be null")
        found.append((name, _read(pair[1], "headers")))
    return tuple(found)


def _integer(value: object, name: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < 1 << 63:
        raise LineError(f"{name}: needs a whole number")
    return value
