"""Options that a user gives by name to one read or write, as texts. Pure.

Names are case-insensitive. An option that nobody knows is an error, because one that is ignored in
silence does the wrong thing; every refusal names the option.
"""

import difflib
import re
from collections.abc import Mapping
from typing import Final

from lakelog.model.failures import Failure

INT32_END: Final = 1 << 31
INT64_END: Final = 1 << 63

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)


class BadOption(Failure):
    """An option that cannot be followed; the text names it and says what to do."""

    def __init__(self, option: str, text: str) -> None:
        super().__init__(text)
        self.option = option

    def __reduce__(self) -> tuple[type["BadOption"], tuple[str, str]]:
        return BadOption, (self.option, str(self))


class NamedOptions:
    """The names that are known, by their own spelling, and those that are often meant by others."""

    def __init__(self, known: tuple[str, ...], meant: Mapping[str, str]) -> None:
        self._names = {name.lower(): name for name in known}
        self._meant = meant

    def spelled(self, options: Mapping[str, str]) -> dict[str, str]:
        """The options by their own spelling; raises `BadOption` for others, and for two of one."""
        given: dict[str, str] = {}
        for name, text in options.items():
            known = self._names.get(name.lower())
            if known is None:
                raise BadOption(name, f"{name} is not an option{self._suggestion(name.lower())}")
            if known in given and given[known] != text:
                raise BadOption(known, f"{known} is given twice: {given[known]!r} and {text!r}")
            given[known] = text
        return given

    def _suggestion(self, name: str) -> str:
        meant = self._meant.get(name)
        close = [meant] if meant else difflib.get_close_matches(name, self._names, n=1, cutoff=0.6)
        return f"; did you mean {self._names.get(close[0], close[0])}?" if close else ""


def boolean(option: str, text: str) -> bool:
    """True or false, in any case."""
    found = {"true": True, "false": False}.get(text.strip().lower())
    if found is None:
        raise BadOption(option, f"{option} is {text!r}, but must be true or false")
    return found


def positive(option: str, text: str, *, end: int = INT64_END) -> int:
    """A whole number above zero and below `end`."""
    number = whole(option, text)
    if not 0 < number < end:
        raise BadOption(option, f"{option} is {text!r}, but must be a number from 1 to {end - 1}")
    return number


def whole(option: str, text: str) -> int:
    """A whole number of 64 bits."""
    stripped = text.strip()
    if _NUMBER.fullmatch(stripped) is not None:
        number = int(stripped)
        if -INT64_END <= number < INT64_END:
            return number
    raise BadOption(option, f"{option} is {text!r}, but must be one whole number")
