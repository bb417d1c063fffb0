"""Keys fall due in the order of their last times, whatever was moved or dropped before."""

from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.coordinator.timers import SLACK, Deadlines


def test_keys_fall_due_in_the_order_of_their_times_and_once() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key, due_s in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
        deadlines.set(key, due_s)
    assert deadlines.take_due(0.9) == []
    assert deadlines.take_due(2.0) == ["a", "b"]
    assert deadlines.take_due(9.0) == ["c"]
    assert deadlines.take_due(9.0) == []


def test_a_deadline_that_was_moved_counts_at_its_new_time_only() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("later", 1.0)
    deadlines.set("later", 5.0)
    deadlines.set("sooner", 5.0)
    deadlines.set("sooner", 1.0)
    assert deadlines.take_due(4.9) == ["sooner"]
    assert deadlines.take_due(5.0) == ["later"]


def test_a_key_that_comes_back_is_not_due_at_its_old_time() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("other", 100.0)
    deadlines.set("key", 1.0)
    deadlines.drop("key")
    deadlines.set("key", 7.0)
    assert deadlines.take_due(6.9) == []
    assert deadlines.due_s("key") == 7.0
    assert deadlines.take_due(7.0) == ["key"]


def test_what_is_dropped_long_before_its_time_takes_no_room() -> None:
    deadlines: Deadlines[int] = Deadlines()
    deadlines.set(-1, 1e9)
    for key in range(10_000):
        deadlines.set(key, 1e6)
        deadlines.drop(key)
    assert len(deadlines) == 1
    assert len(deadlines._heap) <= 2 + SLACK + 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 5), st.integers(0, 50)),
        st.tuples(st.just("drop"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("take"), st.just(0), st.integers(0, 60)),
    ),
    max_size=200,
)


@settings(deadline=None)
@given(STEPS)
def test_a_plain_table_says_the_same(steps: list[tuple[str, int, int]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    table: dict[int, float] = {}
    for kind, key, time_s in steps:
        if kind == "set":
            deadlines.set(key, time_s)
            table[key] = time_s
        elif kind == "drop":
            deadlines.drop(key)
            table.pop(key, None)
        else:
            taken = deadlines.take_due(time_s)
            due = {key: at for key, at in table.items() if at <= time_s}
            assert sorted(taken) == sorted(due)
            assert [due[key] for key in taken] == sorted(due.values())
            table = {key: at for key, at in table.items() if at > time_s}
        assert len(deadlines) == len(table)
        assert all(deadlines.due_s(key) == at for key, at in table.items())
