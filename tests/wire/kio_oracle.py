"""kio as an oracle: the same message as kio's dataclass, and the bytes that kio writes for it."""

import dataclasses
import datetime
import importlib
import io
import typing
import uuid
from typing import Any

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.static.primitive import TZAware, i32Timedelta, i64Timedelta
from msgspec import Struct
from scripts.generate_messages import root_class, wire_name, without_none
from tests.wire.samples import Samples

from lakelog.wire.layout import FieldLayout
from lakelog.wire.schema import ZERO_UUID

ERROR_CODES = sorted(code.value for code in ErrorCode)
MILLISECONDS_MAX = 1 << 40
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class KioSamples(Samples):
    """Random messages that kio can hold: error codes it knows, whole seconds in its range."""

    def number(self, field: FieldLayout) -> object:
        if field.name.endswith("error_code"):
            return self.chance.choice(ERROR_CODES)
        if field.name.endswith("_ms") and field.format == "q":
            seconds = self.chance.randrange(MILLISECONDS_MAX // 1000)
            return self.chance.choice((-1, 0, 1000 * seconds))
        return super().number(field)


def kio_class(kind: type[Struct], version: int) -> Any:
    """kio's class for one of our messages."""
    api = kind.__module__.rpartition(".")[2]
    side = "request" if kind.__name__.endswith("Request") else "response"
    return root_class(importlib.import_module(f"kio.schema.{api}.v{version}.{side}"))


def kio_bytes(message: Struct, version: int) -> bytes:
    """What kio writes for the message."""
    wanted = kio_class(type(message), version)
    buffer = io.BytesIO()
    entity_writer(wanted)(buffer, to_kio(wanted, message))
    return buffer.getvalue()


def to_kio(wanted: Any, message: Struct) -> Any:
    """The message as an instance of kio's class."""
    return wanted(
        **{
            field.name: _value(field, getattr(message, wire_name(field)))
            for field in dataclasses.fields(wanted)
        }
    )


def _value(field: Any, value: Any) -> Any:
    hint, _ = without_none(field.type)
    if value is None:
        return None
    if typing.get_origin(hint) is tuple:
        element, _ = without_none(typing.get_args(hint)[0])
        return tuple(_element(field, element, item) for item in value)
    return _element(field, hint, value)


def _element(field: Any, hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return to_kio(hint, value)
    match field.metadata.get("kafka_type"):
        case "uuid":
            return None if value == ZERO_UUID else uuid.UUID(bytes=value)
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32":
            return i32Timedelta.parse(datetime.timedelta(milliseconds=value))
        case "timedelta_i64":
            return i64Timedelta.parse(datetime.timedelta(milliseconds=value))
        case "datetime_i64":
            moment = EPOCH + datetime.timedelta(milliseconds=value)
            return None if value == -1 else TZAware.parse(moment)
        case "records":
            return bytes(value)
        case _:
            return value
