import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domain.build import B, Domain, trim_of, wal_id
from tests.pipeline.saga.saga_model import LARGE, SMALL, Search, Violation
from tests.pipeline.saga.saga_mutants import MUTANTS, Mutant
from tests.pipeline.saga.saga_services import swapped, trimmed
from tests.pipeline.saga.saga_state import Index, Rules, Setup, Stored
from tests.profiles import sampled

from lakelog.domain.events import Drop, Swap
from lakelog.streams.objects import FileKind, FileName, WalName, digest


@pytest.mark.parametrize("setup", sampled([*SMALL.values()], 4), ids=SMALL)
def test_every_interleaving_keeps_the_invariants_and_can_come_to_a_good_end(setup: Setup) -> None:
    assert Search(setup).run().states > 1000


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_search_sees_every_planted_mistake(mutant: Mutant) -> None:
    with pytest.raises(Violation, match=r"named|twice|missing|planner|stuck|good end|table does"):
        Search(mutant.setup, mutant.rules).run()


def test_the_searches_have_names_of_their_own() -> None:
    assert len(SMALL) + len(LARGE) == len(SMALL | LARGE)


def _entries(domain: Domain) -> Index:
    """The stream as `apply` left it, in the words of the model."""
    row = domain.state.streams.row_of.get(1)
    if row is None:
        return Index(False, 0, 0, ())
    facts = domain.state.streams.columns.arrays
    found = [
        domain.state.index.entry(one) for one in domain.state.index.rows(domain.state.streams, row)
    ]
    named = [Stored(domain.state.objects.name(one.object_row), one.start, one.end) for one in found]
    return Index(True, int(facts["log_start"][row]), int(facts["head"][row]), tuple(named))


_ACTIONS = st.one_of(
    st.tuples(st.just("trim"), st.integers(0, 9), st.just(0), st.just(0)),
    st.tuples(st.just("drop"), st.just(0), st.just(0), st.just(0)),
    st.tuples(
        st.just("swap"),
        st.sampled_from([0, 0, 2, 4, 1]),
        st.sampled_from([8, 6, 4, 2, 7]),
        st.sampled_from([63, 15, 31, 6, 47]),
    ),
)


@given(st.lists(_ACTIONS, max_size=6))
def test_the_index_of_the_model_is_that_of_apply(
    actions: list[tuple[str, int, int, int]],
) -> None:
    domain = Domain(1)
    for _ in range(4):
        domain.commit(B(1, 2))
    index = _entries(domain)
    names = [one.name for one in index.entries]
    names += [FileName(FileKind.PARQUET, f"f{number}") for number in range(2)]
    for what, first, second, chosen in actions:
        if what == "trim":
            domain.add(trim_of({1: first}))
            if index.alive and min(first, index.head) > index.log_start:
                index = trimmed(index, min(first, index.head))
        elif what == "drop":
            domain.add(Drop(np.array([1], dtype=np.int64)))
            index = Index(False, 0, 0, ())
        elif first < second:
            replaces = tuple(
                digest(name) for place, name in enumerate(names) if chosen >> place & 1
            )
            file = FileName(FileKind.PARQUET, f"f{chosen % 2}")
            swap = Swap(1, first, second, file, 50, 9, replaces)
            domain.add(swap)
            index = swapped(Rules(), index, swap) or index
        assert _entries(domain) == index
    assert WalName(wal_id(1_000, 2), "") in names
