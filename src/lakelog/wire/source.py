"""A writer of Python source for the codec compiler: lines, fresh names, constants.

The compiled functions refer to whatever is not a local (struct packers, message classes, default
values) by name in one namespace, which this writer collects.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager

SIMPLE = (int, str, bool, type(None))


class SourceWriter:
    """Collects the body of one function."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.namespace: dict[str, object] = {}
        self._depth = 1
        self._names = 0

    def line(self, text: str) -> None:
        """Add a line at the present depth."""
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add a line that opens a block; what is added inside stands one level deeper."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, stem: str) -> str:
        """A local name that nothing else in the function has."""
        self._names += 1
        return f"{stem}_{self._names}"

    def constant(self, value: object) -> str:
        """An expression for a value: a literal, or the name of a constant."""
        if isinstance(value, SIMPLE) or value in ((), b""):
            return repr(value)
        if isinstance(value, type):
            self.namespace[value.__name__] = value
            return value.__name__
        name = self.name("constant")
        self.namespace[name] = value
        return name

    def unpacker(self, format_codes: str) -> str:
        """The name of a function that reads these big-endian codes at a position."""
        name = f"unpack_{_spelled(format_codes)}"
        self.namespace[name] = struct.Struct(f">{format_codes}").unpack_from
        return name

    def packer(self, format_codes: str) -> str:
        """The name of a function that writes these big-endian codes."""
        name = f"pack_{_spelled(format_codes)}"
        self.namespace[name] = struct.Struct(f">{format_codes}").pack
        return name

    def function(self, head: str) -> str:
        """The source of the function."""
        return "\n".join([head, *self.lines, ""])


def _spelled(format_codes: str) -> str:
    return format_codes.replace("?", "t")
