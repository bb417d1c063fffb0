import inspect

import pytest

from lakelog.broker.errors import Attempt, failure_code, read_code, unknown_code, verdict_code
from lakelog.domain.state import Verdict
from lakelog.log.values import ReadStatus
from lakelog.model import failures
from lakelog.model.errors import RETRIABLE, ErrorCode
from lakelog.model.failures import Failure, OutcomeUnknown, Unavailable
from lakelog.topics.failures import InvalidPartitions, TopicExists

NAMED = [
    kind
    for _, kind in inspect.getmembers(failures, inspect.isclass)
    if issubclass(kind, Failure) and kind is not Failure
]


def test_every_named_failure_has_a_named_code_whatever_we_were_doing() -> None:
    assert NAMED
    for kind in NAMED:
        for attempt in Attempt:
            code = failure_code(kind("why"), attempt)
            assert code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR), (kind, attempt)


def test_what_a_repeat_can_heal_gets_a_code_that_clients_repeat_on() -> None:
    for kind in (Unavailable, OutcomeUnknown):
        for attempt in Attempt:
            assert failure_code(kind("why"), attempt) in RETRIABLE


def test_an_unknown_outcome_of_a_write_is_a_timeout_and_never_a_definite_error() -> None:
    for attempt in (Attempt.APPENDING, Attempt.ADMINISTERING):
        assert failure_code(OutcomeUnknown("?"), attempt) is ErrorCode.REQUEST_TIMED_OUT
    assert verdict_code(Verdict.VOID, by_id=False) is ErrorCode.REQUEST_TIMED_OUT


def test_a_write_that_certainly_did_not_happen_is_not_called_a_timeout() -> None:
    code = failure_code(Unavailable("no"), Attempt.APPENDING)
    assert code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_members_of_groups_hear_a_code_that_they_survive() -> None:
    for failure in (Unavailable("no"), OutcomeUnknown("?")):
        code = failure_code(failure, Attempt.COORDINATING)
        assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_refused_change_of_a_topic_keeps_its_own_code() -> None:
    for failure in (TopicExists("x"), InvalidPartitions("x")):
        for attempt in Attempt:
            assert failure_code(failure, attempt) is failure.code


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        (Verdict.ACCEPTED, 0),
        (Verdict.DUPLICATE, 0),
        (Verdict.UNKNOWN_STREAM, 3),
        (Verdict.OUT_OF_SEQUENCE, 45),
        (Verdict.STALE_EPOCH, 47),
        (Verdict.PRODUCERS_FULL, 19),
        (Verdict.VOID, 7),
    ],
)
def test_verdicts_have_kafkas_codes(verdict: Verdict, code: int) -> None:
    assert verdict_code(verdict, by_id=False) == code


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (ReadStatus.OK, 0),
        (ReadStatus.OUT_OF_RANGE, 1),
        (ReadStatus.UNKNOWN_STREAM, 3),
        (ReadStatus.DAMAGED, 56),
    ],
)
def test_reads_have_kafkas_codes(status: ReadStatus, code: int) -> None:
    assert read_code(status, by_id=False) == code


def test_a_topic_that_is_gone_is_3_by_name_and_100_by_id() -> None:
    assert unknown_code(by_id=False) == 3
    assert unknown_code(by_id=True) == 100
    assert verdict_code(Verdict.UNKNOWN_STREAM, by_id=True) == 100
    assert read_code(ReadStatus.UNKNOWN_STREAM, by_id=True) == 100
