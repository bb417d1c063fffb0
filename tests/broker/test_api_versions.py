import pytest
from tests.broker.admin_stage import AdminStage, run

from lakelog.broker.api import ENDPOINTS, advertised
from lakelog.broker.api_versions import answer, unsupported
from lakelog.broker.call import BrokerOptions
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import APIS, ApiKey
from lakelog.wire.codec import encode
from lakelog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

SOUND = ApiVersionsRequest("lakelog-test", "1.0")
KEYS = advertised(BrokerOptions())


def test_the_ranges_are_those_of_the_table() -> None:
    found = answer(4, SOUND, KEYS)
    assert found.error_code == ErrorCode.NONE
    assert [entry.api_key for entry in found.api_keys] == sorted(map(int, ENDPOINTS))
    for entry in found.api_keys:
        versions = APIS[entry.api_key].versions
        first = 0 if entry.api_key == ApiKey.PRODUCE else versions[0]
        assert (entry.min_version, entry.max_version) == (first, versions[-1])


@pytest.mark.parametrize("version", [5, 99, -1])
def test_an_unknown_version_is_answered_in_version_0_with_one_entry(version: int) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        found = await scene.ask_bytes(ApiKey.API_VERSIONS, version, memoryview(b"\xff"))
        assert found == unsupported()
        assert isinstance(found, ApiVersionsResponse)
        assert found.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert found.api_keys == (ApiVersion(18, 0, 4),)
        assert b"".join(encode(found, 0)) == bytes.fromhex("0023 00000001 0012 0000 0004")

    run(scenario)


@pytest.mark.parametrize("name", ["", "-bad name", "x-", ".x", "a b", "ä", "a\n"])
def test_software_that_is_not_named_properly_is_refused_from_version_3_on(name: str) -> None:
    for request in (ApiVersionsRequest(name, "1"), ApiVersionsRequest("x", name)):
        refused = answer(3, request, KEYS)
        assert (refused.error_code, refused.api_keys) == (ErrorCode.INVALID_REQUEST, ())
        assert answer(2, request, KEYS).error_code == ErrorCode.NONE


@pytest.mark.parametrize("name", ["x", "librdkafka", "apache-kafka-java", "1.9.2", "a--b"])
def test_software_that_is_named_properly_is_served(name: str) -> None:
    assert answer(3, ApiVersionsRequest(name, name), KEYS).error_code == ErrorCode.NONE


def test_features_that_begin_at_0_are_left_out_before_version_4() -> None:
    assert answer(4, SOUND, KEYS).supported_features == (
        SupportedFeatureKey("group.version", 0, 1),
        SupportedFeatureKey("kraft.version", 0, 1),
        SupportedFeatureKey("metadata.version", 7, 30),
    )
    old = answer(3, SOUND, KEYS)
    assert old.supported_features == (SupportedFeatureKey("metadata.version", 7, 30),)
    assert old.finalized_features == (
        FinalizedFeatureKey("group.version", 1, 1),
        FinalizedFeatureKey("metadata.version", 30, 30),
    )
    assert old.finalized_features_epoch >= 0


def test_the_group_protocol_is_a_feature_only_if_its_api_is_served() -> None:
    others = [key for key in KEYS if key is not ApiKey.CONSUMER_GROUP_HEARTBEAT]
    found = answer(4, SOUND, others)
    supported = [feature.name for feature in found.supported_features]
    assert supported == ["kraft.version", "metadata.version"]
    assert [feature.name for feature in found.finalized_features] == ["metadata.version"]
