"""The limits of the pipeline, each with its unit, and waits that keep to one.

What the end of a wait means depends on what was asked: a question was not answered (`reading`), a
change may have happened (`writing`). Who waits for many at once leaves none behind (`together`).
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lakelog.model.failures import Failure, OutcomeUnknown, Unavailable
from lakelog.pipeline.planning.small_files import RewriteOptions
from lakelog.pipeline.planning.wal_ranges import PlanOptions
from lakelog.retry import Backoff


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """How a pipeline plans, how long it waits, and how much it does at once."""

    domains: int
    """The domains of the cluster, as its record says: where a stream's WAL objects are."""
    namespace: str = "lakelog"
    """Where the tables of topics are in the catalog."""
    plan: PlanOptions = field(default_factory=PlanOptions)
    """When a backlog is due; the age comes from each topic."""

    lease_ms: int = 60_000
    """A task whose holder was not heard of for so long is taken over."""
    tasks_max: int = 10_000
    """The most tasks that one round begins."""
    input_bytes_max: int = 64 << 30
    """The most bytes of WAL objects that one round begins to compact."""

    upkeep_ms: int = 60_000
    """How often all streams are looked at for files to be replaced."""
    rewrite: RewriteOptions = field(default_factory=RewriteOptions)
    """Which files are too small, and how large one should be."""

    clock_skew_max_ms: int = 60_000
    """Log compaction waits while our clock is further than this from the object store's."""
    clock_s: float = 10.0
    """The most that comparing the clocks may take."""

    job_bytes: int = 128 << 20
    """A topic with so much to read is a job of its own; smaller ones share jobs of this size."""
    jobs_max: int = 8
    """The most jobs that the engine is asked for at once."""
    job_s: float = 3600.0
    """The most that one job may take."""

    puts_max: int = 128
    """The most changes of records that are under way at once."""
    swaps_max: int = 128
    """The most Swaps that are under way at once."""
    tables_max: int = 8
    """The most tables that are loaded or changed at once."""
    records_s: float = 10.0
    """The most that one read or one change of task records may take."""
    index_s: float = 30.0
    """The most that one question to a broker may take."""
    table_s: float = 120.0
    """The most that one operation of the catalog may take."""

    observations_max: int = 40
    """How often one round looks at a task; eight are the ordinary course."""
    failures_max: int = 3
    """How often in a row one round repeats a step whose outcome stayed unknown."""
    retry_ms: int = 10_000
    """How long a stream waits after its first failure; twice as long after each further one."""
    retry_ms_max: int = 3_600_000

    def __post_init__(self) -> None:
        assert self.domains > 0, self
        assert min(self.lease_ms, self.tasks_max, self.input_bytes_max) > 0, self
        assert min(self.job_bytes, self.jobs_max, self.puts_max, self.swaps_max) > 0, self
        assert min(self.tables_max, self.observations_max, self.failures_max) > 0, self
        assert 0 < self.retry_ms <= self.retry_ms_max, self

    def wait_ms(self, failures: int) -> int:
        """How long a stream that failed so often in a row waits before the next try."""
        assert failures > 0, failures
        return round(Backoff(self.retry_ms, self.retry_ms_max).grown_ms(failures))


T = TypeVar("T")


async def reading(work: Awaitable[T], *, limit_s: float) -> T:
    """The answer to a question; `Unavailable` when it does not come in time."""
    try:
        async with asyncio.timeout(limit_s):
            return await work
    except TimeoutError:
        raise Unavailable(f"no answer within {limit_s:g} s") from None


async def writing(work: Awaitable[T], *, limit_s: float) -> T:
    """The reply to a change; `OutcomeUnknown` when it does not come in time."""
    try:
        async with asyncio.timeout(limit_s):
            return await work
    except TimeoutError:
        raise OutcomeUnknown(f"no reply within {limit_s:g} s") from None


async def together(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results, in order; the first failure ends the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(work) for work in works]
    except BaseExceptionGroup as errors:
        failures, others = errors.split(Failure)
        if others is not None or failures is None:
            raise
        raise failures.exceptions[0] from None
    return [task.result() for task in running]
