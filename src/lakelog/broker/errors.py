"""The one map from failures to Kafka's error codes.

A code tells a client what to do next, so the map asks what we were doing (`Attempt`) and what
went wrong. Three rules decide:

- From the hand-over to the log on, a producer hears the outcome of `apply`, or 7, which says that
  it is not known (L2, B5). A definite error is given only where certainly nothing was written.
- What a repeat can heal gets a code that clients repeat on (`lakelog.model.errors.RETRIABLE`).
- Stored bytes that are wrong are 56 (KAFKA_STORAGE_ERROR): never skipped, never empty (E2).
"""

from enum import Enum, auto
from typing import assert_never

from lakelog.domain.state import Verdict
from lakelog.log.values import ReadStatus
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import (
    Conflict,
    Corrupt,
    Failure,
    NotFound,
    OutcomeUnknown,
    Refused,
    Unavailable,
    WentBack,
    WriterFenced,
)
from lakelog.topics.failures import TopicFailure


class Attempt(Enum):
    """What the broker was doing for the client when a failure met it."""

    APPENDING = auto()  # Produce
    READING = auto()  # Fetch, ListOffsets and the other questions about a partition
    ADMINISTERING = auto()  # topics, configs, DeleteRecords
    NUMBERING = auto()  # InitProducerId
    COORDINATING = auto()  # groups and their offsets


def unknown_code(*, by_id: bool) -> ErrorCode:
    """What a topic that is not there is called: by name 3, by id 100 (rows 6 and 65)."""
    return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def verdict_code(verdict: Verdict, *, by_id: bool) -> ErrorCode:
    """What a producer hears of one batch."""
    match verdict:
        case Verdict.ACCEPTED | Verdict.DUPLICATE:
            # A duplicate is a success with the original's offset (row 20).
            return ErrorCode.NONE
        case Verdict.UNKNOWN_STREAM:
            # The topic was dropped while the batch was on its way (T1).
            return unknown_code(by_id=by_id)
        case Verdict.OUT_OF_SEQUENCE:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        case Verdict.STALE_EPOCH:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        case Verdict.PRODUCERS_FULL:
            # Nothing was written and room comes back when producers expire (B9). Every client
            # repeats on 19, and none gives up its producer id for it.
            return ErrorCode.NOT_ENOUGH_REPLICAS
        case Verdict.VOID:
            # Its object may be swept: never rewritten, and the outcome is a time-out (rule 7).
            return ErrorCode.REQUEST_TIMED_OUT
        case _:
            assert_never(verdict)


def read_code(status: ReadStatus, *, by_id: bool) -> ErrorCode:
    """What a reader hears of one stream."""
    match status:
        case ReadStatus.OK:
            return ErrorCode.NONE
        case ReadStatus.OUT_OF_RANGE:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        case ReadStatus.UNKNOWN_STREAM:
            return unknown_code(by_id=by_id)
        case ReadStatus.DAMAGED:
            return ErrorCode.KAFKA_STORAGE_ERROR
        case _:
            assert_never(status)


def failure_code(failure: Failure, attempt: Attempt) -> ErrorCode:
    """What a client hears when the world failed us."""
    match failure:
        case TopicFailure():
            return failure.code
        case OutcomeUnknown():
            return _unknown_outcome_code(attempt)
        case Unavailable() | Conflict():
            return _nothing_written_code(attempt)
        case Corrupt() | NotFound() | WentBack() | Refused() | WriterFenced():
            # The store does not hold what it must, or the process has to end: somebody must look.
            return ErrorCode.KAFKA_STORAGE_ERROR
        case _:
            return ErrorCode.UNKNOWN_SERVER_ERROR


def _unknown_outcome_code(attempt: Attempt) -> ErrorCode:
    match attempt:
        case Attempt.APPENDING | Attempt.ADMINISTERING:
            return ErrorCode.REQUEST_TIMED_OUT
        case Attempt.READING | Attempt.NUMBERING | Attempt.COORDINATING:
            # A read changes nothing, a block of ids that was perhaps taken is never used, and what
            # a group was told says what it was made for: all are safe to repeat.
            return _nothing_written_code(attempt)
        case _:
            assert_never(attempt)


def _nothing_written_code(attempt: Attempt) -> ErrorCode:
    match attempt:
        case Attempt.APPENDING:
            # Retriable everywhere, and librdkafka knows that it means "not persisted".
            return ErrorCode.NOT_ENOUGH_REPLICAS
        case Attempt.READING:
            # Clients ask for metadata again and may move to a broker that has a proof (E1).
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        case Attempt.ADMINISTERING:
            return ErrorCode.REQUEST_TIMED_OUT
        case Attempt.NUMBERING:
            # What Kafka answers while it has no block of ids.
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        case Attempt.COORDINATING:
            # One of the few codes that members of groups survive in every version (row 81).
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case _:
            assert_never(attempt)
