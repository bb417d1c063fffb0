"""Which manifests of a table a commit writes anew as one. Pure.

A library that merges the newest manifests whenever there are eight writes the same growing one
again and again: with small appends every seventh commit took 20 times as long as the others. Here
manifests are merged only with their like, four at a time: a file is written anew once for each
power of four, a long merge is rare, and a table has few manifests beside the full ones.
"""

from collections.abc import Sequence
from typing import Final

FAN: Final = 4
"""So many manifests of one size are merged."""

FULL: Final = 1024
"""A manifest of so many files is never merged; reading one takes about 50 ms."""


def manifests_to_merge(counts: Sequence[int]) -> tuple[int, ...]:
    """The places of the manifests to write as one, by how many files each has; mostly none.

    What comes out of merging one size counts for the next: all of it is one merge.
    """
    chosen: list[int] = []
    total = 0
    floor, ceiling = 0, FAN
    while floor < FULL:
        alike = [place for place, count in enumerate(counts) if floor <= count < ceiling]
        is_merged_one = bool(chosen) and floor <= total < ceiling
        if len(alike) + is_merged_one >= FAN:
            for place in alike:
                if total < FULL:
                    chosen.append(place)
                    total += counts[place]
        floor, ceiling = ceiling, ceiling * FAN
    return tuple(sorted(chosen))
