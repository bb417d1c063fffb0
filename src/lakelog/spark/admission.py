"""How much a trigger takes, of which partition: `maxOffsetsPerTrigger` and its kin. Pure.

The shares are those of Spark's Kafka source: by how much each partition has, and one offset at
least of each that has any, so that none starves. So a trigger can take more than the limit, by
fewer offsets than there are partitions.
"""

from collections.abc import Mapping

from lakelog.lake.read.read_request import PartitionName


def offset_count(begins: Mapping[PartitionName, int], ends: Mapping[PartitionName, int]) -> int:
    """How many offsets there are from the begins to the ends."""
    return sum(max(0, end - begins[place]) for place, end in ends.items())


def admitted(
    begins: Mapping[PartitionName, int], ends: Mapping[PartitionName, int], *, limit: int
) -> dict[PartitionName, int]:
    """Where a trigger ends that takes about so many offsets, for each partition in `ends`."""
    total = offset_count(begins, ends)
    if total <= limit:
        return dict(ends)
    taken = {}
    for place, end in ends.items():
        size = max(0, end - begins[place])
        share = max(1, limit * size // total)
        taken[place] = begins[place] + share if share < size else end
    return taken


def is_due(count: int, *, least: int, waited_s: float | None, delay_s: float) -> bool:
    """Whether a trigger has enough to take; what is there is taken when it has waited so long.

    Nobody has waited for the first trigger yet (None), and it takes what there is.
    """
    return count >= least or (count > 0 and (waited_s is None or waited_s >= delay_s))
