import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker import classic_members, consumer_members
from tests.broker.group_stage import LONE, FixedCluster, GroupStage, run
from tests.broker.offset_requests import commit, commit_request, offset

from lakelog.broker import loop_turn
from lakelog.groups.events import CommitOffsets
from lakelog.model.ids import BrokerId
from lakelog.topics.routing import BrokerNode
from lakelog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

ALL = {
    "simple": ListedGroup("simple", "", "Empty", "classic"),
    "preparing": ListedGroup("preparing", "consumer", "PreparingRebalance", "classic"),
    "completing": ListedGroup("completing", "consumer", "CompletingRebalance", "classic"),
    "live": ListedGroup("live", "connect", "Stable", "classic"),
    "": ListedGroup("", "", "Empty", "classic"),
    "new": ListedGroup("new", "consumer", "Stable", "consumer"),
}


async def filled() -> GroupStage:
    """A group of every kind."""
    stage = GroupStage()
    topic = stage.topic("t")
    for group_id in ("simple", ""):
        await commit(stage, commit_request(offset(0, 5), group_id=group_id))
    await stage.begin(classic_members.join_request(group_id="preparing"), 3)
    await classic_members.joined(stage, "completing")
    await classic_members.stable(stage, "live", protocol_type="connect")
    answer = await consumer_members.beat(
        stage, consumer_members.join_request("m", "t", group_id="new")
    )
    owned = {topic.id: (0,)}
    request = consumer_members.beat_request("m", answer.member_epoch, owned, group_id="new")
    await consumer_members.beat(stage, request)
    return stage


def test_every_group_is_listed_with_what_the_version_tells() -> None:
    async def scenario() -> None:
        stage = await filled()
        for version in range(6):
            answer = await stage.ask(ListGroupsRequest(), ListGroupsResponse, version)
            assert answer.error_code == 0
            assert {group.group_id: group for group in answer.groups} == {
                name: ListedGroup(
                    name,
                    group.protocol_type,
                    group.group_state if version >= 4 else "",
                    group.group_type if version >= 5 else "",
                )
                for name, group in ALL.items()
            }

    run(scenario())


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        (("Stable",), (), {"live", "new"}),
        (("stable", " EMPTY "), (), {"live", "new", "simple", ""}),
        (("PREPARINGrebalance",), (), {"preparing"}),
        (("completingRebalance", "nosuch"), (), {"completing"}),
        (("nosuch",), (), set()),
        (("Dead",), (), set()),
        ((), ("classic",), set(ALL) - {"new"}),
        ((), ("CONSUMER",), {"new"}),
        ((), ("share", "nosuch"), set()),
        (("Stable",), ("Classic",), {"live"}),
    ],
)
def test_filters_ignore_case_and_what_is_none_matches_nothing(
    states: tuple[str, ...], types: tuple[str, ...], found: set[str]
) -> None:
    async def scenario() -> None:
        stage = await filled()
        answer = await stage.ask(ListGroupsRequest(states, types), ListGroupsResponse, 5)
        assert answer.error_code == 0
        assert {group.group_id for group in answer.groups} == found

    run(scenario())


ZONES = [None, "zone_id=a", "zone_id=b", "zone_id=c"]
THREE = FixedCluster(
    BrokerNode(BrokerId(1), "a.test", 1, rack="a"),
    BrokerNode(BrokerId(2), "b.test", 2, rack="b"),
    BrokerNode(BrokerId(3), "c.test", 3, rack="b"),
)


@given(st.sets(st.text(max_size=8), max_size=30), st.sampled_from(ZONES))
def test_all_brokers_of_a_view_together_list_each_group_once(
    groups: set[str], client_id: str | None
) -> None:
    async def scenario() -> None:
        seen: list[str] = []
        for node in THREE.view(client_id).nodes:
            stage = GroupStage(cluster=THREE, node_id=node.id, client_id=client_id)
            for group_id in sorted(groups):
                stage.groups.apply(CommitOffsets(group_id, "", None, -1, 9, 1, ()))
            answer = await stage.ask(ListGroupsRequest(), ListGroupsResponse, 5)
            seen += [group.group_id for group in answer.groups]
        assert sorted(seen) == sorted(groups)

    run(scenario())


def test_groups_of_all_domains_are_listed_after_a_proof_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_turn, "ITEMS_PER_LOOK", 7)

    async def scenario() -> None:
        stage = GroupStage(cluster=FixedCluster(LONE, domains=3))
        names = {f"group-{number}" for number in range(20)}
        stage.groups.foreign = [
            CommitOffsets(name, "", None, -1, 9, 1, ((bytes(16), 0, 1, -1, ""),))
            for name in sorted(names)
        ]
        answer = await stage.ask(ListGroupsRequest(), ListGroupsResponse, 5)
        assert {group.group_id for group in answer.groups} == names
        stage.groups.stale_domains = {1}
        answer = await stage.ask(ListGroupsRequest(), ListGroupsResponse, 5)
        assert answer == ListGroupsResponse(error_code=15)

    run(scenario())
