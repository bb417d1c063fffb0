"""What tools ask of partitions, brokers and features that Lakelog has no need of."""

import pytest
from tests.broker.admin_stage import AdminStage, run
from tests.broker.whole import call, finish, whole_broker
from tests.memory_cluster import MemoryCluster
from tests.memory_cluster import run as run_whole
from tests.topics.stepped_stores import Fault, make

from lakelog.broker import describe_quorum
from lakelog.model.errors import ErrorCode
from lakelog.wire.codec import encode
from lakelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from lakelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from lakelog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from lakelog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicPartitions,
)
from lakelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from lakelog.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from lakelog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(3))
def test_no_election_is_needed_and_what_is_not_there_is_unknown(version: int) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "t", 2)
        asked = (
            ElectLeadersTopicPartitions("t", (0, 1, 2)),
            ElectLeadersTopicPartitions("nosuch", (0,)),
        )
        request = ElectLeadersRequest(topic_partitions=asked)
        found = await scene.ask(request, ElectLeadersResponse, version)
        codes = [
            [partition.error_code for partition in topic.partition_result]
            for topic in found.replica_election_results
        ]
        needless = ErrorCode.ELECTION_NOT_NEEDED
        assert codes == [[needless, needless, UNKNOWN], [UNKNOWN]]
        everything = ElectLeadersRequest(topic_partitions=None)
        answer = await scene.ask(everything, ElectLeadersResponse, version)
        assert (answer.error_code, answer.replica_election_results) == (NONE, ())

    run(scenario)


def test_an_election_of_a_type_that_nobody_knows_is_refused() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        found = await scene.ask(ElectLeadersRequest(election_type=9), ElectLeadersResponse, 2)
        assert found.error_code == ErrorCode.INVALID_REQUEST

    run(scenario)


@pytest.mark.parametrize("version", range(2))
def test_a_reassignment_is_refused_with_the_reason_unless_it_changes_nothing(version: int) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker(3)
        await make(scene.broker.topics, "t", 4)
        wanted: list[tuple[int, ...] | None] = [(1, 2), (3,), None]
        partitions = [ReassignablePartition(*pair) for pair in enumerate(wanted)]
        partitions.append(ReassignablePartition(9, (3,)))
        request = AlterPartitionReassignmentsRequest(
            topics=(ReassignableTopic("t", tuple(partitions)),)
        )
        found = await scene.ask(request, AlterPartitionReassignmentsResponse, version)
        (topic,) = found.responses
        assert [partition.error_code for partition in topic.partitions] == [
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            NONE,
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            UNKNOWN,
        ]
        assert "every broker serves every partition" in (topic.partitions[0].error_message or "")
        assert found.error_code == NONE

    run(scenario)


def test_without_the_store_no_partition_is_called_unknown() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "t", 1)
        taken = scene.steps.taken
        scene.steps.faults = dict.fromkeys(range(taken, taken + 99), Fault.UNAVAILABLE)
        election = ElectLeadersRequest(topic_partitions=(ElectLeadersTopicPartitions("t", (9,)),))
        elected = await scene.ask(election, ElectLeadersResponse, 2)
        moved = ReassignableTopic("t", (ReassignablePartition(9, (1,)),))
        moving = AlterPartitionReassignmentsRequest(topics=(moved,))
        reassigned = await scene.ask(moving, AlterPartitionReassignmentsResponse, 1)
        path = AlterReplicaLogDir(scene.broker.log.url, (AlterReplicaLogDirTopic("t", (9,)),))
        placed = await scene.ask(
            AlterReplicaLogDirsRequest((path,)), AlterReplicaLogDirsResponse, 2
        )
        assert [
            elected.replica_election_results[0].partition_result[0].error_code,
            reassigned.responses[0].partitions[0].error_code,
            placed.results[0].partitions[0].error_code,
        ] == [ErrorCode.REQUEST_TIMED_OUT] * 3

    run(scenario)


def test_no_reassignment_is_under_way() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        request = ListPartitionReassignmentsRequest(topics=None)
        found = await scene.ask(request, ListPartitionReassignmentsResponse, 0)
        assert (found.error_code, found.error_message, found.topics) == (NONE, None, ())

    run(scenario)


@pytest.mark.parametrize("version", range(1, 3))
def test_partitions_are_in_the_object_store_and_nowhere_else(version: int) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        await make(scene.broker.topics, "t", 1)
        topics = (AlterReplicaLogDirTopic("t", (0, 1)),)
        paths = (scene.broker.log.url, "/elsewhere")
        request = AlterReplicaLogDirsRequest(
            tuple(AlterReplicaLogDir(path, topics) for path in paths)
        )
        found = await scene.ask(request, AlterReplicaLogDirsResponse, version)
        codes = [
            [partition.error_code for partition in topic.partitions] for topic in found.results
        ]
        assert codes == [[NONE, UNKNOWN], [ErrorCode.LOG_DIR_NOT_FOUND] * 2]

    run(scenario)


def test_a_broker_that_lives_is_not_unregistered_and_no_other_is_registered() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker(1)
        live = await scene.ask(UnregisterBrokerRequest(1), UnregisterBrokerResponse, 0)
        gone = await scene.ask(UnregisterBrokerRequest(7), UnregisterBrokerResponse, 0)
        assert live.error_code == ErrorCode.INVALID_REQUEST
        assert gone.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED

    run(scenario)


@pytest.mark.parametrize("version", range(3))
def test_no_feature_can_be_updated(version: int) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        updates = (FeatureUpdateKey("metadata.version", 20),)
        request = UpdateFeaturesRequest(feature_updates=updates)
        found = await scene.ask(request, UpdateFeaturesResponse, version)
        assert found.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert found.error_message
        nothing = await scene.ask(UpdateFeaturesRequest(), UpdateFeaturesResponse, version)
        assert nothing.error_code == NONE

    run(scenario)


@pytest.mark.parametrize("version", range(3))
def test_the_quorum_has_one_voter_who_is_as_far_as_the_log(version: int) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster, 4) as broker:
            asked = tuple(
                DescribeQuorumRequestTopicData(name, (DescribeQuorumRequestPartitionData(0),))
                for name in ("__cluster_metadata", "t")
            )
            answer = await finish(
                await describe_quorum.handle(
                    broker, call(broker, version), DescribeQuorumRequest(asked)
                )
            )
            assert isinstance(answer, DescribeQuorumResponse)
            encode(answer, version)
            (ours,), (other,) = (topic.partitions for topic in answer.topics)
            (voter,) = ours.current_voters
            assert (ours.leader_id, voter.replica_id, ours.observers) == (4, 4, ())
            assert ours.high_watermark == voter.log_end_offset
            assert voter.log_end_offset == broker.log.replicas[0].state.position + 1
            assert [node.node_id for node in answer.nodes] == [4]
            assert other.error_code == UNKNOWN

    run_whole(scenario)
