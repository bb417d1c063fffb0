"""A session runs from the last sign of life, and running out is only a suspicion."""

from lakelog.coordinator.member_expiry import MemberKey, Sessions, SilentMember
from lakelog.coordinator.timers import LATE_EXCUSED_S_MAX, TickLateness

KEY: MemberKey = ("g", "m")


def watched(
    now_s: float = 0.0,
    timeout_s: float = 10.0,
    epoch: int = 3,
    lateness: TickLateness | None = None,
) -> Sessions:
    sessions = Sessions(lateness or TickLateness())
    sessions.begin(KEY, timeout_s=timeout_s, holder_epoch=epoch, now_s=now_s)
    return sessions


def test_a_member_is_suspected_after_its_session_and_not_before() -> None:
    sessions = watched()
    assert sessions.suspects(9.99) == []
    assert sessions.suspects(10.0) == [SilentMember(KEY, holder_epoch=3, until_s=20.0)]


def test_each_sign_of_life_gives_a_whole_session() -> None:
    sessions = watched()
    for now_s in range(0, 100, 9):
        assert sessions.suspects(now_s) == []
        sessions.renew(KEY, now_s)
    assert sessions.suspects(108.9) == []
    assert [suspect.key for suspect in sessions.suspects(109.1)] == [KEY]


def test_a_suspect_that_spoke_meanwhile_is_not_silent() -> None:
    sessions = watched()
    (suspect,) = sessions.suspects(10.0)
    assert sessions.is_silent(suspect)
    sessions.renew(KEY, 10.1)
    assert not sessions.is_silent(suspect)


def test_a_suspect_that_has_another_holder_or_is_gone_is_not_silent() -> None:
    sessions = watched()
    (suspect,) = sessions.suspects(10.0)
    sessions.begin(KEY, timeout_s=10.0, holder_epoch=4, now_s=10.0)
    assert not sessions.is_silent(suspect)
    sessions.end(KEY)
    assert not sessions.is_silent(suspect)


def test_a_suspicion_that_nobody_acts_on_comes_again_after_a_session() -> None:
    sessions = watched()
    sessions.suspects(10.0)
    assert sessions.suspects(19.9) == []
    assert len(sessions.suspects(20.0)) == 1


def test_renewing_a_member_that_others_watch_does_nothing() -> None:
    sessions = Sessions(TickLateness())
    sessions.renew(KEY, 5.0)
    assert KEY not in sessions
    assert sessions.suspects(1e9) == []


def test_all_sessions_begin_anew_in_full() -> None:
    sessions = watched(timeout_s=10.0)
    sessions.begin(("g", "long"), timeout_s=30.0, holder_epoch=0, now_s=0.0)
    sessions.restart(9.0)
    assert sessions.suspects(18.9) == []
    assert [suspect.key[1] for suspect in sessions.suspects(19.0)] == ["m"]
    assert [suspect.key[1] for suspect in sessions.suspects(39.0)] == ["m", "long"]


def test_a_session_begins_anew_once_until_its_member_is_heard_of() -> None:
    sessions = watched()
    sessions.restart(9.0)
    sessions.restart(18.0)
    assert len(sessions.suspects(19.0)) == 1
    sessions.renew(KEY, 20.0)
    sessions.restart(29.0)
    assert sessions.suspects(38.9) == []
    assert len(sessions.suspects(39.0)) == 1


def test_late_ticks_are_excused_once_and_again_after_a_sign_of_life() -> None:
    lateness = TickLateness()
    sessions = watched(lateness=lateness)
    lateness.ticked(expected_s=8.0, now_s=10.0)
    assert sessions.suspects(10.0) == []
    lateness.ticked(expected_s=10.1, now_s=11.9)
    assert sessions.suspects(11.9) == []
    assert len(sessions.suspects(12.0)) == 1
    sessions.renew(KEY, 12.0)
    assert len(sessions.suspects(22.0)) == 1  # no tick was late since
    sessions.renew(KEY, 22.0)
    lateness.ticked(expected_s=32.0, now_s=99.0)
    assert sessions.suspects(99.0) == []
    assert sessions.suspects(99.0 + LATE_EXCUSED_S_MAX - 0.1) == []
    assert len(sessions.suspects(99.0 + LATE_EXCUSED_S_MAX)) == 1


def test_a_suspect_that_nobody_could_look_at_is_one_again_at_once() -> None:
    sessions = watched()
    suspects = sessions.suspects(10.0)
    sessions.suspect_again(suspects, 10.0)
    again = sessions.suspects(10.1)
    assert [suspect.key for suspect in again] == [KEY]
    sessions.renew(KEY, 10.2)
    sessions.suspect_again(again, 10.3)
    assert sessions.suspects(10.4) == []
