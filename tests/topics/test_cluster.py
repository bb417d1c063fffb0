import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace

import msgspec
import pytest
from tests.topics.stepped_stores import (
    Fault,
    LoopClock,
    SteppedStore,
    Steps,
    manual_clock,
    run_virtual,
)

from lakelog.clock import SeededEntropy
from lakelog.meta import keys
from lakelog.meta.memory import MemoryMetadataStore
from lakelog.model.failures import Corrupt, OutcomeUnknown, Refused, Unavailable
from lakelog.model.ids import BrokerId
from lakelog.topics.cluster import SESSION_TTL_S, Cluster, http_addresses, open_cluster
from lakelog.topics.routing import BrokerNode


class SharedStore:
    """A store that several brokers share, and time that passes when they wait."""

    def __init__(self) -> None:
        self.clock = LoopClock()
        self.store = MemoryMetadataStore(self.clock)
        self._made = 0

    async def cluster(self, steps: Steps | None = None) -> Cluster:
        self._made += 1
        entropy = SeededEntropy(f"cluster {self._made}")
        store = SteppedStore(self.store.another(), steps or Steps())
        record = await open_cluster(self.store.another(), entropy)
        return Cluster(store, self.clock, entropy, record)


def run(scenario: Callable[[SharedStore], Awaitable[None]]) -> None:
    async def played() -> None:
        await scenario(SharedStore())

    run_virtual(played())


def now_s() -> float:
    return LoopClock().monotonic_s()


def node(number: int, port: int = 9092, machine: str = "m1", rack: str | None = None) -> BrokerNode:
    return BrokerNode(BrokerId(number), "host", port, rack, machine)


def test_the_first_broker_makes_the_record_and_all_others_find_it() -> None:
    async def scenario() -> None:
        store = MemoryMetadataStore(manual_clock())
        found = await asyncio.gather(
            *(open_cluster(store.another(), SeededEntropy(str(n))) for n in range(5))
        )
        assert len(set(found)) == 1
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", found[0].cluster_id)
        assert found[0].domains == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.SWALLOWED])
def test_a_record_whose_writing_was_not_confirmed_is_settled_by_reading(fault: Fault) -> None:
    async def scenario() -> None:
        steps = Steps()
        steps.faults = {1: fault}
        store = SteppedStore(MemoryMetadataStore(manual_clock()), steps)
        if fault is Fault.LOST:
            with pytest.raises(Unavailable):
                await open_cluster(store, SeededEntropy("x"))
        record = await open_cluster(store, SeededEntropy("y"))
        assert await open_cluster(store, SeededEntropy("z")) == record

    asyncio.run(scenario())


def test_another_number_of_domains_is_refused_and_nothing_written() -> None:
    async def scenario() -> None:
        store = MemoryMetadataStore(manual_clock())
        await open_cluster(store, SeededEntropy("a"), domains=2)
        before = await store.range("")
        with pytest.raises(Refused, match=r"made with 2 domain\(s\), and 3 are configured"):
            await open_cluster(store, SeededEntropy("b"), domains=3)
        assert (await open_cluster(store, SeededEntropy("c"))).domains == 2
        assert await store.range("") == before

    asyncio.run(scenario())


def test_data_of_a_newer_version_is_refused_and_nothing_written() -> None:
    async def scenario() -> None:
        store = MemoryMetadataStore(manual_clock())
        newer = {"format": 2, "cluster_id": "x", "domains": 1, "what": "is this"}
        await store.put(keys.CLUSTER, msgspec.json.encode(newer))
        before = await store.range("")
        with pytest.raises(Refused, match="written by a newer Lakelog"):
            await open_cluster(store, SeededEntropy("a"))
        assert await store.range("") == before
        await store.put(keys.CLUSTER, b"what")
        with pytest.raises(Corrupt):
            await open_cluster(store, SeededEntropy("a"))

    asyncio.run(scenario())


def test_brokers_see_each_other_and_agree_on_leaders() -> None:
    async def scenario(shared: SharedStore) -> None:
        first, second = await shared.cluster(), await shared.cluster()
        await first.register(node(1))
        await second.register(node(2, 9093))
        await first.refresh()
        assert [n.id for n in first.nodes()] == [1, 2]
        assert first.nodes() == second.nodes()
        assert {first.view().leader_of_key(str(number)) for number in range(50)} == {1, 2}
        assert first.view() == second.view()

    run(scenario)


def test_an_id_in_use_elsewhere_is_refused_with_what_to_do() -> None:
    async def scenario(shared: SharedStore) -> None:
        first, second = await shared.cluster(), await shared.cluster()
        await first.register(node(1))
        renewing = asyncio.get_running_loop().create_task(first.run())
        with pytest.raises(Refused, match=r"broker id 1 is in use by a broker at host:9092"):
            await second.register(node(1, 9092, "m2"))
        renewing.cancel()

    run(scenario)


def test_an_id_is_free_once_its_holders_session_has_ended() -> None:
    async def scenario(shared: SharedStore) -> None:
        first, second = await shared.cluster(), await shared.cluster()
        await first.register(node(1))
        began_s = now_s()
        await second.register(node(1, 9092, "m2"))
        assert now_s() - began_s >= SESSION_TTL_S
        third = await shared.cluster()
        await second.leave()
        began_s = now_s()
        await third.register(node(1, 9092, "m3"))
        assert now_s() - began_s < 0.1

    run(scenario)


def test_a_restart_on_its_own_port_does_not_wait() -> None:
    async def scenario(shared: SharedStore) -> None:
        first, second = await shared.cluster(), await shared.cluster()
        await first.register(node(1))
        began_s = now_s()
        await second.register(node(1))
        assert now_s() - began_s < 0.1
        await asyncio.sleep(SESSION_TTL_S - 0.1)
        await second._renew(node(1))
        await asyncio.sleep(0.2)  # the first one's session has ended now, and takes nothing along
        await second.refresh()
        assert await shared.store.get(keys.broker(1)) is not None

    run(scenario)


def test_a_broker_whose_session_was_lost_registers_again() -> None:
    async def scenario(shared: SharedStore) -> None:
        cluster = await shared.cluster()
        await cluster.register(node(1))
        await asyncio.sleep(SESSION_TTL_S * 2)
        assert cluster.alive_until_s < now_s()
        await cluster.refresh()
        assert [n.id for n in cluster.nodes()] == [1]  # we know that we live
        await cluster._renew(node(1))
        assert cluster.alive_until_s == now_s() + SESSION_TTL_S
        assert await shared.store.get(keys.broker(1)) is not None

    run(scenario)


def test_a_broker_whose_id_was_taken_meanwhile_stops() -> None:
    async def scenario(shared: SharedStore) -> None:
        first, second = await shared.cluster(), await shared.cluster()
        await first.register(node(1))
        await asyncio.sleep(SESSION_TTL_S + 1)
        await second.register(node(1, 9092, "m2"))
        renewing = asyncio.get_running_loop().create_task(second.run())
        with pytest.raises(Refused):
            await first.run()
        renewing.cancel()

    run(scenario)


def test_the_list_of_brokers_stays_while_the_store_cannot_be_read() -> None:
    async def scenario(shared: SharedStore) -> None:
        steps = Steps()
        first, second = await shared.cluster(steps), await shared.cluster()
        await second.register(node(2, 9093))
        await first.register(node(1))
        before = first.view()
        steps.faults = dict.fromkeys(range(steps.taken, steps.taken + 5), Fault.UNAVAILABLE)
        with pytest.raises(Unavailable):
            await first.refresh()
        assert first.view() is before
        assert [n.id for n in first.nodes()] == [1, 2]

    run(scenario)


def test_a_broker_is_listed_until_its_session_has_ended() -> None:
    async def scenario(shared: SharedStore) -> None:
        first, second = await shared.cluster(), await shared.cluster()
        await first.register(node(1))
        await second.register(node(2, 9093))
        for _ in range(int(SESSION_TTL_S) - 1):
            await asyncio.sleep(1)
            await first._renew(node(1))
            await first.refresh()
            assert [n.id for n in first.nodes()] == [1, 2]
        await asyncio.sleep(2)
        await first.refresh()
        assert [n.id for n in first.nodes()] == [1]

    run(scenario)


@pytest.mark.parametrize("step", range(4))
@pytest.mark.parametrize("fault", [Fault.LOST, Fault.SWALLOWED])
def test_registration_is_settled_or_can_be_repeated(step: int, fault: Fault) -> None:
    async def scenario(shared: SharedStore) -> None:
        steps = Steps()
        cluster = await shared.cluster(steps)
        steps.faults = {steps.taken + step: fault}
        try:
            await cluster.register(node(1))
        except (Unavailable, OutcomeUnknown):
            await cluster.register(node(1))
        assert [n.id for n in cluster.nodes()] == [1]
        assert await shared.store.get(keys.broker(1)) is not None

    run(scenario)


def test_clients_of_a_zone_see_its_brokers() -> None:
    async def scenario(shared: SharedStore) -> None:
        first, second = await shared.cluster(), await shared.cluster()
        await first.register(node(1, rack="a"))
        await second.register(node(2, 9093, rack="b"))
        assert [n.id for n in second.view("zone_id=a").nodes] == [1]
        assert [n.id for n in second.view("zone_id=nowhere").nodes] == [1, 2]
        assert [n.id for n in second.view("app").nodes] == [1, 2]

    run(scenario)


def test_a_broker_that_loads_its_state_has_its_id_and_is_not_seen_yet() -> None:
    """It must hold the id before it writes under it, and must get no clients before it serves."""

    async def scenario(shared: SharedStore) -> None:
        loading, other = await shared.cluster(), await shared.cluster()
        await loading.claim(node(1))
        await other.register(node(2, port=9093))
        assert [one.id for one in other.nodes()] == [2]
        assert await shared.store.get(keys.broker(1)) is not None
        await loading.register(node(1))
        await other.refresh()
        assert [one.id for one in other.nodes()] == [1, 2]

    run(scenario)


def test_a_broker_that_has_its_id_is_registered_whether_it_serves_or_not() -> None:
    async def scenario(shared: SharedStore) -> None:
        serving, loading = await shared.cluster(), await shared.cluster()
        await serving.register(node(7))
        await loading.claim(node(2, port=9093))
        assert [one.id for one in serving.nodes()] == [7]
        assert await serving.registered() == [2, 7]
        await loading.leave()
        assert await serving.registered() == [7]

    run(scenario)


def test_a_broker_whose_key_was_taken_while_its_session_lives_takes_it_back() -> None:
    async def scenario(shared: SharedStore) -> None:
        cluster, other = await shared.cluster(), await shared.cluster()
        await cluster.register(node(1))
        renewing = asyncio.get_running_loop().create_task(cluster.run())
        await other.register(node(1))  # as a restart on our own port would
        await other.leave()
        assert await shared.store.get(keys.broker(1)) is None
        await asyncio.sleep(SESSION_TTL_S)
        assert await shared.store.get(keys.broker(1)) is not None
        await other.refresh()
        assert [n.id for n in other.nodes()] == [1]
        renewing.cancel()

    run(scenario)


def test_a_broker_that_loads_for_long_keeps_its_id_and_is_not_seen() -> None:
    async def scenario(shared: SharedStore) -> None:
        cluster, other = await shared.cluster(), await shared.cluster()
        await cluster.claim(node(1))
        renewing = asyncio.get_running_loop().create_task(cluster.run())
        await asyncio.sleep(SESSION_TTL_S * 3)
        assert cluster.alive_until_s > now_s()
        await other.register(node(2))
        assert [n.id for n in other.nodes()] == [2]
        await cluster.register(node(1))
        await other.refresh()
        assert [n.id for n in other.nodes()] == [1, 2]
        renewing.cancel()

    run(scenario)


def test_brokers_that_serve_are_found_by_their_http_ports() -> None:
    async def scenario(shared: SharedStore) -> None:
        assert await http_addresses(shared.store) == []
        served = replace(node(1), http="a:8080")
        loading = replace(node(3, 9094), http="c:8080")
        first, second, third = [await shared.cluster() for _ in range(3)]
        await first.register(served)
        await second.register(node(2, 9093))
        await third.claim(loading)
        assert await http_addresses(shared.store) == ["a:8080"]
        await third.register(loading)
        assert await http_addresses(shared.store) == ["a:8080", "c:8080"]
        await first.refresh()
        assert [one.http for one in first.nodes()] == ["a:8080", "", "c:8080"]
        await first.leave()
        assert await http_addresses(shared.store) == ["c:8080"]

    run(scenario)


def test_a_broker_of_a_version_that_told_no_http_port_is_still_understood() -> None:
    async def scenario(shared: SharedStore) -> None:
        old = {"host": "h", "port": 1, "rack": None, "machine": "", "advertised": True}
        value = msgspec.json.encode({**old, "token": "x", "serving": True})
        await shared.store.put(keys.broker(7), value)
        assert await http_addresses(shared.store) == []

    run(scenario)
