"""Ids that were given out wait for their members, for a while and not without number."""

from lakelog.coordinator.classic_requests import IssuedMemberIds


def test_an_id_is_known_until_it_is_used() -> None:
    issued = IssuedMemberIds()
    issued.give(("g", "m"), until_s=10.0)
    assert ("g", "m") in issued
    assert ("other", "m") not in issued
    assert issued.take(("g", "m"))
    assert not issued.take(("g", "m"))


def test_an_id_that_nobody_uses_is_forgotten_in_time() -> None:
    issued = IssuedMemberIds()
    issued.give(("g", "m"), until_s=10.0)
    issued.expire(9.9)
    assert ("g", "m") in issued
    issued.expire(10.0)
    assert ("g", "m") not in issued


def test_a_flood_of_ids_pushes_the_oldest_out() -> None:
    issued = IssuedMemberIds(count_max=3)
    for number in range(5):
        issued.give(("g", str(number)), until_s=10.0)
    assert len(issued) == 3
    assert ("g", "1") not in issued
    assert ("g", "2") in issued
