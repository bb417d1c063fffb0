"""Manual replica assignments of CreateTopics and CreatePartitions: checked as Kafka does. Pure.

Nothing is assigned, because any broker serves any partition; but a client that assigns hears of its
mistakes, and of brokers that do not exist.
"""

from collections.abc import Collection, Iterable, Sequence

from lakelog.topics.failures import InvalidAssignment, InvalidChange
from lakelog.wire.messages.create_partitions import CreatePartitionsAssignment
from lakelog.wire.messages.create_topics import CreatableTopic


def check_replicas(replicas: Iterable[Sequence[int]], live: Collection[int]) -> int:
    """The number of replicas that all partitions have; raises `InvalidAssignment`."""
    size = 0
    for brokers in replicas:
        if not brokers:
            raise InvalidAssignment(
                "The manual partition assignment includes an empty replica list."
            )
        ordered = sorted(brokers)
        for place, broker in enumerate(ordered):
            if broker not in live:
                raise InvalidAssignment(
                    f"The manual partition assignment includes broker {broker}, but no such"
                    " broker is registered."
                )
            if place and ordered[place - 1] == broker:
                raise InvalidAssignment(
                    f"The manual partition assignment includes the broker {broker} more than once."
                )
        if size and len(brokers) != size:
            raise InvalidAssignment(
                f"The manual partition assignment includes a partition with {len(brokers)}"
                " replica(s), but this is not consistent with previous partitions, which have"
                f" {size} replica(s)."
            )
        size = len(brokers)
    return size


def check_topic(topic: CreatableTopic, live: Collection[int]) -> tuple[int, int]:
    """The partitions and the replication factor that a new topic's assignment amounts to."""
    if topic.replication_factor != -1:
        raise InvalidChange(
            "A manual partition assignment was specified, but replication factor was not set to -1."
        )
    if topic.num_partitions != -1:
        raise InvalidChange(
            "A manual partition assignment was specified, but numPartitions was not set to -1."
        )
    partitions: set[int] = set()
    for assignment in topic.assignments:
        if assignment.partition_index in partitions:
            raise InvalidAssignment(
                "Found multiple manual partition assignments for partition"
                f" {assignment.partition_index}"
            )
        partitions.add(assignment.partition_index)
    replicas = check_replicas((found.broker_ids for found in topic.assignments), live)
    if partitions != set(range(len(partitions))):
        raise InvalidAssignment("partitions should be a consecutive 0-based integer sequence")
    return len(partitions), replicas


def check_growth(
    assignments: Sequence[CreatePartitionsAssignment] | None,
    *,
    added: int,
    live: Collection[int],
) -> None:
    """Raises `InvalidAssignment` unless the new partitions are assigned one by one.

    The number of replicas is not compared with the topic's, which is only what somebody asked for.
    """
    if assignments is None:
        return
    if len(assignments) != added:
        raise InvalidAssignment(
            f"Attempted to add {added} additional partition(s), but only {len(assignments)}"
            " assignment(s) were specified."
        )
    check_replicas((assignment.broker_ids for assignment in assignments), live)
