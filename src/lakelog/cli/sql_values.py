"""The values of an Arrow column as people and programs read them: text, numbers, lists and objects.

As in `lakelog records consume`, bytes stand as text where they are UTF-8, else as base64. Times are
ISO 8601 with a Z where they have a zone, in any year: Python's dates end with the year 9999, and a
record's time does not. Numbers stay exact.
"""

import base64
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

_encoder: Final = msgspec.json.Encoder(decimal_format="number", enc_hook=str)


def values_of(column: pa.Array) -> list[object]:
    """The values of a column, one for each row; None for null."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _times(column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return list(_lists(column))
    if pa.types.is_fixed_size_list(kind):
        return [None if one.as_py() is None else values_of(one.values) for one in column]
    if pa.types.is_struct(kind):
        return _objects(column)
    return [_plain(value) for value in column.to_pylist()]


def json_of(value: object) -> str:
    """A value as JSON on one line."""
    return _encoder.encode(value).decode()


def text_of(value: object) -> str:
    """A value as a cell of a table shows it: one line, whatever it holds."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json_of(value)


def _plain(value: object) -> object:
    found: object
    match value:
        case bytes():
            found = _bytes(value)
        case Decimal() if value == value.to_integral_value():
            found = int(value)
        case datetime() | date() | time():
            found = value.isoformat()
        case None | bool() | int() | float() | str() | Decimal():
            found = value
        case _:
            found = str(value)
    return found


def _bytes(value: bytes) -> object:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _times(column: pa.Array) -> list[object]:
    kind = column.type
    numbers = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    texts = np.datetime_as_string(numbers.astype(f"datetime64[{kind.unit}]"), unit=kind.unit)
    end = "Z" if kind.tz else ""
    nulls = column.is_null().to_pylist()
    return [
        None if is_null else f"{_short(text)}{end}"
        for text, is_null in zip(texts.tolist(), nulls, strict=True)
    ]


def _short(text: str) -> str:
    """The time to the millisecond, which is what records have, or as exact as it is."""
    whole, point, part = text.partition(".")
    kept = part.rstrip("0").ljust(3, "0") if point else ""
    return f"{whole}{point}{kept}"


def _lists(column: pa.Array) -> Iterator[object]:
    if pa.types.is_map(column.type):
        pairs = zip(values_of(column.keys), values_of(column.items), strict=True)
        inner: list[object] = [list(pair) for pair in pairs]
    else:
        inner = values_of(column.values)
    edges = column.offsets.to_pylist()
    for at, is_null in enumerate(column.is_null().to_pylist()):
        yield None if is_null else inner[edges[at] : edges[at + 1]]


def _objects(column: pa.Array) -> list[object]:
    names = [field.name for field in column.type]
    parts = [values_of(column.field(at)) for at in range(len(names))]
    nulls = column.is_null().to_pylist()
    return [
        None if is_null else dict(zip(names, (part[at] for part in parts), strict=True))
        for at, is_null in enumerate(nulls)
    ]
