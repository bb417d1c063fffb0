import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.admin_stage import AdminStage, Scene
from tests.broker.admin_stage import run as run_staged
from tests.broker.group_stage import FixedCluster, GroupStage, run

from lakelog.broker.call import NAMED_MAX, CloseConnection
from lakelog.model.ids import BrokerId
from lakelog.topics.routing import BrokerNode
from lakelog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from lakelog.wire.messages.metadata import MetadataRequest, MetadataResponse

TWO = FixedCluster(
    BrokerNode(BrokerId(1), "a.test", 9092, rack="a"),
    BrokerNode(BrokerId(2), "b.test", 9093, rack="b"),
)


def find(
    stage: GroupStage, *keys: str, version: int = 6, key_type: int = 0
) -> FindCoordinatorResponse:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys, key="".join(keys))
    return run(stage.ask(request, FindCoordinatorResponse, version))


def test_the_lone_broker_coordinates_every_group_in_every_version() -> None:
    stage = GroupStage()
    for version in range(4):
        found = find(stage, "g", version=version)
        assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "a.test", 9092)
        assert found.error_message == ("NONE" if version else "")
    for version in range(4, 7):
        found = find(stage, "g", "", version=version)
        assert found.coordinators == tuple(
            Coordinator(key, 1, "a.test", 9092, 0, "") for key in ("g", "")
        )
    assert find(stage).coordinators == ()


@given(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=20))
def test_all_brokers_send_the_members_of_a_group_to_the_same_one(groups: list[str]) -> None:
    answers = [
        find(GroupStage(cluster=TWO, node_id=BrokerId(number)), *groups).coordinators
        for number in (1, 2)
    ]
    assert answers[0] == answers[1]
    assert {one.node_id for one in answers[0]} <= {1, 2}


def test_groups_are_spread_over_the_brokers() -> None:
    found = find(GroupStage(cluster=TWO), *(f"group-{number}" for number in range(200)))
    nodes = [one.node_id for one in found.coordinators]
    assert 60 < nodes.count(1) < 140


def test_a_client_of_a_zone_is_sent_to_a_broker_that_its_metadata_shows() -> None:
    groups = [f"group-{number}" for number in range(50)]
    stage = GroupStage(cluster=TWO)
    for zone, node in (("a", 1), ("b", 2)):
        found = find(stage.as_client(f"zone_id={zone}"), *groups)
        assert {one.node_id for one in found.coordinators} == {node}


def test_the_address_is_the_one_that_metadata_tells() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene: Scene = await stage.broker()
        request = FindCoordinatorRequest(coordinator_keys=("g",))
        found = await scene.ask(request, FindCoordinatorResponse, 6)
        shown = await scene.ask(MetadataRequest(topics=()), MetadataResponse, 12)
        (coordinator,), (broker,) = found.coordinators, shown.brokers
        assert (coordinator.node_id, coordinator.host, coordinator.port) == (
            broker.node_id,
            broker.host,
            broker.port,
        )

    run_staged(scenario)


@pytest.mark.parametrize(
    ("version", "key_type", "code"),
    [
        (1, 1, 53),
        (3, 1, 53),
        (4, 1, 42),
        (6, 1, 42),
        (3, 2, 42),
        (6, 2, 42),
        (6, 7, 42),
        (2, -1, 42),
    ],
)
def test_transactions_and_unknown_types_have_no_coordinator(
    version: int, key_type: int, code: int
) -> None:
    found = find(GroupStage(), "t", version=version, key_type=key_type)
    if version < 4:
        told = (found.error_code, found.node_id, found.host, found.port)
        message = found.error_message
    else:
        (only,) = found.coordinators
        assert only.key == "t"
        told = (only.error_code, only.node_id, only.host, only.port)
        message = only.error_message
    assert told == (code, -1, "", -1)
    assert message


def test_a_request_of_too_many_keys_closes_the_connection() -> None:
    with pytest.raises(CloseConnection):
        find(GroupStage(), *("g",) * (NAMED_MAX + 1))
