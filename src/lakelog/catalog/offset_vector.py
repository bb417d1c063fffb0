"""The offset vector of a table: its text, and which advances it admits. Pure.

The vector says for every partition up to which offset the table holds the log. It decides alone
whether a range may be appended, is there already, or does not fit (rule 24); so a repeat after a
lost reply, by whomever and whatever expired meanwhile, never adds a row twice.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from lakelog.catalog.port import Advance, Misfit
from lakelog.model.failures import Corrupt


class Fit(Enum):
    """How an advance that is no misfit stands to the table."""

    FRESH = auto()
    PRESENT = auto()


@dataclass(frozen=True, slots=True)
class JudgedAdvance:
    """The advances of a round by what is to be done with them."""

    fresh: tuple[Advance, ...]
    present: tuple[Advance, ...]
    misfits: tuple[Misfit, ...]


def format_vector(vector: Mapping[int, int]) -> str:
    """The vector as JSON, partitions in order, so that equal vectors have equal text."""
    return json.dumps({str(p): vector[p] for p in sorted(vector)}, separators=(",", ":"))


def parse_vector(text: str) -> dict[int, int]:
    """The vector in a table's property; `Corrupt` for anything that we did not write."""
    try:
        found = json.loads(text)
        vector = {int(partition): end for partition, end in found.items()}
    except (ValueError, AttributeError, RecursionError) as error:
        raise Corrupt(f"not an offset vector: {text[:100]!r}") from error
    if any(type(end) is not int or end < 0 or partition < 0 for partition, end in vector.items()):
        raise Corrupt(f"not an offset vector: {text[:100]!r}")
    return vector


def judge(vector: Mapping[int, int], advance: Advance) -> Fit | Misfit:
    """Whether the table may take the advance, has it, or can do neither."""
    reached = vector.get(advance.partition)
    if reached is not None and reached >= advance.end:
        return Fit.PRESENT
    if reached == advance.start or (reached is None and advance.start == 0):
        return Fit.FRESH
    if (reached is None or reached < advance.start) and advance.at_log_start:
        return Fit.FRESH
    place = "nothing" if reached is None else f"offsets up to {reached}"
    wanted = f"[{advance.start}, {advance.end})"
    return Misfit(advance.partition, f"the table holds {place}, {wanted} does not follow it")


def judge_all(vector: Mapping[int, int], advances: tuple[Advance, ...]) -> JudgedAdvance:
    """Sort the advances of a round, which has one at most for each partition."""
    partitions = [advance.partition for advance in advances]
    assert len(set(partitions)) == len(partitions), partitions
    fresh, present, misfits = [], [], []
    for advance in sorted(advances, key=lambda one: one.partition):
        match judge(vector, advance):
            case Misfit() as misfit:
                misfits.append(misfit)
            case Fit.FRESH:
                fresh.append(advance)
            case Fit.PRESENT:
                present.append(advance)
    return JudgedAdvance(tuple(fresh), tuple(present), tuple(misfits))


def advanced(vector: Mapping[int, int], advances: tuple[Advance, ...]) -> dict[int, int]:
    """The vector once these advances, all of them fresh, are in the table."""
    return {**vector, **{advance.partition: advance.end for advance in advances}}
