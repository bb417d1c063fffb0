"""One value of the configuration: from what a user wrote to what an options class holds. Pure.

A user writes TOML values in a file and text in the environment and in flags; both end here. Sizes
and durations may carry a unit (`64MiB`, `7d`), which is converted to the unit that the key's name
ends with, so that `retention_ms = "7d"` means what it says.
"""

import re
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, Protocol, TypeAlias, runtime_checkable

Raw: TypeAlias = str | int | float | bool | list[object]
"""What a file, the environment or a flag holds."""

BYTE_UNITS: Final = {
    "B": 1,
    "kB": 1000,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
TIME_UNITS_MS: Final = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
TRUE: Final = frozenset({"true", "yes", "on", "1"})
FALSE: Final = frozenset({"false", "no", "off", "0"})
_QUANTITY: Final = re.compile(r"(?P<number>-?\d+(\.\d+)?)\s*(?P<unit>[A-Za-z]+)")


class BadValueError(ValueError):
    """What a user wrote is not a value of this key; the text says what is."""


@runtime_checkable
class Parsed(Protocol):
    """A type that knows how it is written."""

    @classmethod
    def parse(cls, text: str) -> object:
        """Read the value; raises ValueError with the reason."""


def convert(raw: Raw, kind: object, *, key: str) -> object:
    """The value as the options class wants it; raises ValueError with the reason."""
    options = typing.get_args(kind)
    if isinstance(kind, types.UnionType) and type(None) in options:
        if raw == "":
            return None
        kind = next(option for option in options if option is not type(None))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum(raw, kind)
    if isinstance(kind, Parsed):
        if not isinstance(raw, str):
            raise BadValueError(f"needs a text in quotes, not {raw!r}")
        return kind.parse(raw)
    if typing.get_origin(kind) is tuple:
        return tuple(_texts(raw))
    reader = _SCALARS.get(kind)
    assert reader is not None, f"{key}: an options class has a field of type {kind}"
    return reader(raw, key)


def _texts(raw: Raw) -> list[str]:
    if isinstance(raw, str):
        return [part.strip() for part in raw.split(",") if part.strip()]
    if isinstance(raw, list) and all(isinstance(part, str) for part in raw):
        return [str(part) for part in raw]
    raise BadValueError(f"needs a list of texts, not {raw!r}")


def _enum(raw: Raw, kind: type[Enum]) -> Enum:
    for member in kind:
        if str(raw).lower() in {str(member.value).lower(), member.name.lower()}:
            return member
    allowed = ", ".join(str(member.value) for member in kind)
    raise BadValueError(f"is {raw!r}, but must be one of: {allowed}")


def _boolean(raw: Raw, _: str) -> bool:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and raw.lower() in TRUE | FALSE:
        return raw.lower() in TRUE
    raise BadValueError(f"needs true or false, not {raw!r}")


def _integer(raw: Raw, key: str) -> int:
    number = _number(raw, key)
    if number != int(number):
        raise BadValueError(f"needs a whole number, not {raw!r}")
    return int(number)


def _number(raw: Raw, key: str) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise BadValueError(f"needs a number, not {raw!r}")
    if not isinstance(raw, str):
        return raw
    text = raw.strip().replace("_", "")
    try:
        return int(text)
    except ValueError:
        pass
    found = _QUANTITY.fullmatch(text)
    if found is not None:
        return _quantity(float(found["number"]), found["unit"], key)
    try:
        return float(text)
    except ValueError:
        raise BadValueError(f"needs a number, not {raw!r}") from None


def _quantity(number: float, unit: str, key: str) -> float:
    allowed = _units_of(key)
    if unit not in allowed:
        known = ", ".join(allowed) if allowed else "no unit"
        raise BadValueError(f"has the unit {unit!r}, but takes {known}")
    return number * allowed[unit]


def _units_of(key: str) -> Mapping[str, float]:
    words = key.replace(".", "_").split("_")
    if "bytes" in words:
        return BYTE_UNITS
    if words[-1] == "ms":
        return TIME_UNITS_MS
    if words[-1] == "s":
        return {unit: length / 1000 for unit, length in TIME_UNITS_MS.items()}
    return {}


def _text(raw: Raw, _: str) -> str:
    if isinstance(raw, str):
        return raw
    raise BadValueError(f"needs a text in quotes, not {raw!r}")


_SCALARS: Final[dict[object, Callable[[Raw, str], object]]] = {
    bool: _boolean,
    int: _integer,
    float: lambda raw, key: float(_number(raw, key)),
    str: _text,
}
