"""Subscription patterns of KIP-848: RE2, matched against whole topic names. Pure.

Kafka uses RE2J, so we use RE2 itself: time grows with the pattern times the name, never beyond,
whatever a client sends. What RE2 accepts may still be expensive by its size, so size is bounded
four times: characters, classes of Unicode, instructions of the compiled program, and the memory of
its matcher. Kafka bounds none of these; there a nested counted repetition fills the heap.

The engine is imported with the first pattern: most brokers never see one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

PATTERN_CHARACTERS_MAX: Final = 2048
"""Eight of the longest names side by side, or about sixty usual ones. The pattern is kept in the
log and in every member that uses it, and to compile the worst one of this length takes 35 ms."""

UNICODE_CLASSES_MAX: Final = 16
"""How often `\\p` or `\\P` may stand in a pattern: names are ASCII, and each costs 0.1 ms."""

PROGRAM_INSTRUCTIONS_MAX: Final = 2560
"""Any pattern of plain characters fits; a name costs no more than this much per character."""

ENGINE_BYTES_MAX: Final = 1 << 20
"""The memory of one compiled pattern with its cache of states. A larger one makes plain patterns no
faster, and hostile ones, which fill any cache, slower (measured up to 8 MiB)."""


class PatternError(ValueError):
    """Not a pattern that we accept; the text says why and may go to the client."""


class CompiledRegex(Protocol):
    """What we use of RE2's compiled expression."""

    @property
    def programsize(self) -> int:
        """The number of instructions."""

    def fullmatch(self, text: bytes) -> object | None:
        """Something, if the text matches from end to end."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled subscription pattern."""

    text: str
    engine: CompiledRegex = field(repr=False, compare=False)


def compile_pattern(text: str) -> Pattern:
    """The compiled pattern; raises PatternError with a reason that a client can read."""
    if len(text) > PATTERN_CHARACTERS_MAX:
        raise PatternError(f"longer than {PATTERN_CHARACTERS_MAX} characters")
    if text.count("\\p") + text.count("\\P") > UNICODE_CLASSES_MAX:
        raise PatternError(f"more than {UNICODE_CLASSES_MAX} classes of Unicode")
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise PatternError("not a text of Unicode") from error
    engine = _compile(encoded)
    if engine.programsize > PROGRAM_INSTRUCTIONS_MAX:
        raise PatternError("pattern too large")
    return Pattern(text, engine)


def matching(pattern: Pattern, names: Iterable[str]) -> tuple[str, ...]:
    """The names that match from end to end, sorted."""
    fullmatch = pattern.engine.fullmatch
    return tuple(sorted({name for name in names if fullmatch(name.encode()) is not None}))


def _compile(encoded: bytes) -> CompiledRegex:
    import re2  # noqa: PLC0415 - 4 ms and 3 MB that most brokers never need

    options = re2.Options()
    options.log_errors = False  # it would write to standard error
    options.never_capture = True
    options.max_mem = ENGINE_BYTES_MAX
    try:
        engine: CompiledRegex = re2.compile(encoded, options)
    except re2.error as error:
        (reason,) = error.args
        readable = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise PatternError(readable) from error
    finally:
        # The module keeps the last 128 expressions for ever; ours live as long as their users.
        re2.purge()
    return engine
