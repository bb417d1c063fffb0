"""One value of a client's configuration: from what a user wrote to what the settings hold. Pure.

Values come as librdkafka's bindings take them: a text, a number or a boolean, each also as text. A
reader raises ValueError with the reason; who calls it adds the key.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from lakelog.client.endpoint import Endpoint

Value: TypeAlias = str | int | bool | tuple[Endpoint, ...]
"""What a reader gives."""

Reader: TypeAlias = Callable[[object], Value]
"""Makes a value of what was written."""

TRUE: Final = frozenset({"true", "t", "1", "yes", "on"})
FALSE: Final = frozenset({"false", "f", "0", "no", "off"})
INT32_MAX: Final = 2**31 - 1
SHOWN_MAX: Final = 60


def text(written: object) -> str:
    """A text as it stands."""
    if isinstance(written, bytes):
        written = written.decode("utf-8")
    if not isinstance(written, str):
        raise ValueError(f"needs a text, not {shown(written)}")  # noqa: TRY004 - one kind of failure
    return written


def secret(written: object) -> str:
    """A text that is never repeated, whatever is wrong with it."""
    if not isinstance(written, str):
        raise ValueError("needs a text")  # noqa: TRY004 - one kind of failure
    return written


def boolean(written: object) -> bool:
    """True or false, or a word for it."""
    word = str(written).strip().lower() if isinstance(written, str | int) else ""
    if word not in TRUE | FALSE:
        raise ValueError(f"needs true or false, not {shown(written)}")
    return word in TRUE


def number(least: int, most: int = INT32_MAX) -> Reader:
    """A reader of whole numbers in [least, most]."""

    def read(written: object) -> int:
        whole = _whole(written)
        if not least <= whole <= most:
            raise ValueError(f"is {whole}, but must be in {least} to {most}")
        return whole

    return read


def choice(options: dict[str, str]) -> Reader:
    """A reader of words, whatever their case: what may be written, and what it means."""

    def read(written: object) -> str:
        found = options.get(text(written).strip().lower())
        if found is None:
            known = ", ".join(sorted(set(options)))
            raise ValueError(f"is {shown(written)}, but must be one of: {known}")
        return found

    return read


def endpoints(written: object) -> tuple[Endpoint, ...]:
    """Addresses with commas between them, or a sequence of addresses; each of them once."""
    if isinstance(written, Sequence) and not isinstance(written, str | bytes):
        parts = [text(part) for part in written]
    else:
        parts = text(written).split(",")
    found = tuple(dict.fromkeys(Endpoint.parse(part) for part in parts if part.strip()))
    if not found:
        raise ValueError("is empty, but needs at least one host:port")
    return found


def shown(written: object) -> str:
    """What was written, short enough for a message."""
    whole = repr(written)
    return whole if len(whole) <= SHOWN_MAX else f"{whole[:SHOWN_MAX]}..."


def _whole(written: object) -> int:
    if isinstance(written, float) and written.is_integer():
        return int(written)
    if isinstance(written, int) and not isinstance(written, bool):
        return written
    if isinstance(written, str) and len(written) <= 20:  # longer is no number that counts anything
        try:
            return int(written)
        except ValueError:
            pass
    raise ValueError(f"needs a whole number, not {shown(written)}")
