import pytest
from tests.broker.admin_stage import AdminStage, run

from lakelog.model.errors import ErrorCode
from lakelog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described_as_metadata_shows_it(version: int) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        found = await scene.ask(
            DescribeClusterRequest(include_cluster_authorized_operations=True),
            DescribeClusterResponse,
            version,
        )
        assert found.error_code == ErrorCode.NONE
        assert found.cluster_id == scene.broker.cluster.cluster_id
        assert found.controller_id == 1
        (node,) = found.brokers
        assert (node.broker_id, node.host, node.port, node.is_fenced) == (
            1,
            "127.0.0.1",
            19092,
            False,
        )
        assert found.cluster_authorized_operations == 8096

    run(scenario)


@pytest.mark.parametrize(("kind", "code"), [(2, 114), (0, 115), (3, 115), (-1, 115)])
def test_only_brokers_can_be_asked_for(kind: int, code: int) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        found = await scene.ask(
            DescribeClusterRequest(endpoint_type=kind), DescribeClusterResponse, 2
        )
        assert (found.error_code, found.brokers, found.cluster_id) == (code, (), "")

    run(scenario)
