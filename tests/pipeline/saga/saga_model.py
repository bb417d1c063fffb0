"""An exhaustive search of the saga: every interleaving of workers and faults, each state once.

`python -m tests.pipeline.saga.saga_model [words]` runs the searches whose name holds the words, the
large ones too, and prints their sizes. A state is checked when it is first reached; at the end,
every state must be able to come to a good end.
"""

import sys
import time
from dataclasses import dataclass, field

from tests.pipeline.saga.saga_invariants import flaw, is_good_end
from tests.pipeline.saga.saga_moves import Impossible, Moves
from tests.pipeline.saga.saga_state import Budget, Rules, SagaState, Setup, begin

from lakelog.pipeline.saga.values import TaskTarget


class Violation(Exception):  # noqa: N818 - it is what happened, and no error of the caller
    """Something that must not be, with how it came about."""


@dataclass
class Search:
    """One search: the rules, the size, and what was found."""

    setup: Setup
    rules: Rules = field(default_factory=Rules)
    states: int = 0
    seconds: float = 0.0
    _parents: dict[SagaState, tuple[SagaState, str] | None] = field(default_factory=dict)

    def run(self) -> "Search":
        """Visit everything; raises `Violation` at the first state that must not be."""
        started = time.perf_counter()
        root = begin(self.setup)
        numbers: dict[SagaState, int] = {root: 0}
        self._parents[root] = None
        before: list[list[int]] = [[]]
        good: list[int] = []
        moves = Moves(self.setup, self.rules)
        queue = [root]
        for state in queue:
            number = numbers[state]
            self._check(state)
            if is_good_end(state, self.setup):
                good.append(number)
            for action, raw in self._next(moves, state):
                reached = moves.settled(raw)
                found = numbers.get(reached)
                if found is None:
                    found = numbers[reached] = len(numbers)
                    self._parents[reached] = (state, action)
                    before.append([])
                    queue.append(reached)
                before[found].append(number)
            if len(numbers) > self.setup.states_max:
                raise Violation("the search is larger than it should be")
        self.states = len(numbers)
        self._check_progress(queue, before, good)
        self.seconds = time.perf_counter() - started
        return self

    def _next(self, moves: Moves, state: SagaState) -> list[tuple[str, SagaState]]:
        try:
            return list(moves.successors(state))
        except Impossible as error:
            raise Violation(f"{error}\n{self.story(state)}") from None

    def _check_progress(
        self, states: list[SagaState], before: list[list[int]], good: list[int]
    ) -> None:
        hopeful = bytearray(len(states))
        for number in good:
            hopeful[number] = 1
        todo = list(good)
        while todo:
            for number in before[todo.pop()]:
                if not hopeful[number]:
                    hopeful[number] = 1
                    todo.append(number)
        for number, hope in enumerate(hopeful):
            if not hope:
                raise Violation("no good end can be reached\n" + self.story(states[number]))

    def _check(self, state: SagaState) -> None:
        wrong = flaw(state)
        if wrong is not None:
            raise Violation(f"{wrong}\n{self.story(state)}")

    def story(self, state: SagaState) -> str:
        """The actions that lead to a state."""
        actions = []
        here = self._parents[state]
        while here is not None:
            actions.append(here[1])
            here = self._parents[here[0]]
        return "\n".join(f"  {place}. {one}" for place, one in enumerate(reversed(actions), 1))


SMALL = {
    "three workers": Setup(entries=1, workers=3, pieces_max=1, budget=Budget(rival=2)),
    "crash, rival": Setup(entries=2, budget=Budget(crash=1, rival=1)),
    "lost reply, rival": Setup(entries=1, pieces_max=1, budget=Budget(lost=1, rival=1)),
    "abort, lost reply": Setup(entries=1, pieces_max=1, budget=Budget(abort=1, lost=1)),
    "abort, rival, foreign commit": Setup(
        entries=1, pieces_max=1, budget=Budget(abort=1, rival=1, foreign=1)
    ),
    "two tasks, rival": Setup(entries=4, budget=Budget(rival=1)),
    "trim, rival": Setup(entries=2, budget=Budget(trim=1, rival=1)),
    "drop, rival": Setup(entries=2, budget=Budget(drop=1, rival=1)),
    "record lost, crash": Setup(entries=2, budget=Budget(wipe=1, crash=1)),
    "snapshots expire, crash": Setup(entries=2, budget=Budget(crash=1), tracks_ids=True),
    "a segment first, trim": Setup(
        entries=2, pieces_max=1, budget=Budget(trim=1), quarantine=((0, 2),)
    ),
    "rows of a segment, crash": Setup(
        entries=2, pieces_max=2, budget=Budget(crash=1), quarantine=((0, 4),)
    ),
    "rows of a segment, rival": Setup(
        entries=1, pieces_max=1, budget=Budget(rival=1), quarantine=((0, 2),)
    ),
    "rows of a segment, abort, foreign commit": Setup(
        entries=1, pieces_max=1, budget=Budget(abort=1, foreign=1), quarantine=((0, 2),)
    ),
    "rewrite, crash": Setup(
        entries=2, files=2, replaces=TaskTarget.REWRITE, budget=Budget(crash=1)
    ),
    "rewrite, rival": Setup(
        entries=2, files=2, replaces=TaskTarget.REWRITE, budget=Budget(rival=1)
    ),
    "rewrite, trim, retention": Setup(
        entries=2, files=2, replaces=TaskTarget.REWRITE, budget=Budget(trim=1, retire=1)
    ),
    "clean, abort, rival": Setup(
        entries=1, files=1, replaces=TaskTarget.CLEAN, budget=Budget(abort=1, rival=1)
    ),
}
"""Searches for every run of the tests."""

LARGE = {
    "two tasks, crash": Setup(entries=3, budget=Budget(crash=1)),
    **{
        f"{target.value}, {name}": Setup(entries=2, files=2, replaces=target, budget=budget)
        for target in (TaskTarget.REWRITE, TaskTarget.CLEAN)
        for name, budget in (
            ("crash, rival", Budget(crash=1, rival=1)),
            ("lost reply, rival", Budget(lost=1, rival=1)),
            ("abort, lost reply", Budget(abort=1, lost=1)),
            ("abort, rival, foreign commit", Budget(abort=1, rival=1, foreign=1)),
            ("trim, retention, rival", Budget(trim=1, retire=1, rival=1)),
            ("drop, rival", Budget(drop=1, rival=1)),
        )
    },
    "rewrite, then a new file, crash": Setup(
        entries=3, files=2, replaces=TaskTarget.REWRITE, budget=Budget(crash=1)
    ),
    "clean, then a new file, trim": Setup(
        entries=3, files=2, replaces=TaskTarget.CLEAN, budget=Budget(trim=1)
    ),
    "crash, lost reply, rival": Setup(entries=2, budget=Budget(1, 1, 1)),
    "two crashes, two tasks": Setup(entries=3, budget=Budget(crash=2)),
    "abort, lost reply, rival": Setup(entries=2, budget=Budget(abort=1, lost=1, rival=1)),
    "abort, two rivals": Setup(entries=2, budget=Budget(abort=1, rival=2)),
    "abort, drop, rival": Setup(entries=2, budget=Budget(abort=1, drop=1, rival=1)),
    "lost reply, rival, two tasks": Setup(entries=3, budget=Budget(lost=1, rival=1)),
    "lost reply, drop, rival": Setup(entries=2, budget=Budget(lost=1, drop=1, rival=1)),
    "trim, rival, two tasks": Setup(entries=3, budget=Budget(trim=1, rival=1)),
    "two trims, lost reply": Setup(entries=2, budget=Budget(trim=2, lost=1)),
    "drop, rival, three workers": Setup(
        entries=1, workers=3, pieces_max=1, budget=Budget(drop=1, rival=1)
    ),
    "snapshots expire, lost reply, rival": Setup(
        entries=2, budget=Budget(lost=1, rival=1), tracks_ids=True
    ),
    "record lost, crash, trim": Setup(entries=2, budget=Budget(wipe=1, crash=1, trim=1)),
    "rows of segments, record lost, crash": Setup(
        entries=2, pieces_max=1, budget=Budget(wipe=1, crash=1), quarantine=((0, 2),)
    ),
    "rows of two segments, trim, rival": Setup(
        entries=2, pieces_max=1, budget=Budget(trim=1, rival=1), quarantine=((0, 4),)
    ),
    "rows of a segment, drop, rival": Setup(
        entries=1, pieces_max=1, budget=Budget(drop=1, rival=1), quarantine=((0, 2),)
    ),
    "a segment first, rival, lost reply": Setup(
        entries=2, pieces_max=1, budget=Budget(rival=1, lost=1), quarantine=((0, 2),)
    ),
}
"""Searches of minutes, run by hand when the saga changes."""


def main() -> int:
    """Run every search and print its size."""
    total = 0
    words = " ".join(sys.argv[1:])
    for name, setup in (*SMALL.items(), *LARGE.items()):
        if words not in name:
            continue
        found = Search(setup).run()
        total += found.states
        print(f"{name:36} {found.states:9,} states {found.seconds:7.1f} s", flush=True)
    print(f"{'all':36} {total:9,} states")
    return 0


if __name__ == "__main__":
    sys.exit(main())
