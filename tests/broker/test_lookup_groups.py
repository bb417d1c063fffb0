import asyncio
from collections.abc import Awaitable, Callable

from tests.broker.group_stage import GroupStage
from tests.topics.stepped_stores import run_virtual

from lakelog.broker.lookup import PROOF_S_MAX, are_topics_current, is_proved, unproven


class Silent:
    """A store that takes every question and answers none."""

    async def prove(self, group_id: str | None, *, arrived_s: float) -> None:
        del group_id, arrived_s
        await asyncio.Event().wait()

    async def current(self) -> None:
        await asyncio.Event().wait()


def took_s(work: Callable[[GroupStage], Awaitable[object]], answer: object) -> float:
    """How long it took to learn that a silent store proves nothing."""

    async def scenario() -> float:
        stage = GroupStage()
        stage.groups = stage.topics = Silent()  # type: ignore[assignment]  # as much as is asked
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert await work(stage) == answer
        return loop.time() - began_s

    return run_virtual(scenario())


def test_no_proof_is_waited_for_longer_than_it_may_take() -> None:
    for proof in (
        lambda stage: is_proved(stage.broker, stage.call(1), "g"),
        lambda stage: is_proved(stage.broker, stage.call(1), None),
        lambda stage: are_topics_current(stage.broker),
    ):
        assert took_s(proof, False) <= PROOF_S_MAX + 0.1


def test_the_proofs_of_many_groups_are_waited_for_together() -> None:
    names = [f"group-{number}" for number in range(50)]
    stale = frozenset(names)
    proof = took_s(lambda stage: unproven(stage.broker, stage.call(1), names), stale)
    assert proof <= PROOF_S_MAX + 0.1


def test_no_groups_need_no_proof() -> None:
    assert took_s(lambda stage: unproven(stage.broker, stage.call(1), ()), frozenset()) == 0
