from importlib import import_module

import pytest
from tests.broker.admin_stage import AdminStage, run

from lakelog.broker.api import ENDPOINTS, advertised
from lakelog.broker.call import BrokerOptions, CloseConnection
from lakelog.wire.apis import APIS, ApiKey
from lakelog.wire.messages.api_versions import ApiVersionsResponse
from lakelog.wire.schema import ProtocolError

TRANSACTIONS = (24, 25, 26, 27, 28)
BETWEEN_BROKERS = (4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 80, 82)


@pytest.mark.parametrize("key", [*TRANSACTIONS, *BETWEEN_BROKERS, -1, 9_999])
def test_what_is_not_served_is_not_advertised_and_closes_the_connection(key: int) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        with pytest.raises(CloseConnection):
            await scene.ask_bytes(key, 0, memoryview(b""))

    assert key not in list(map(int, ENDPOINTS))
    run(scenario)


@pytest.mark.parametrize("key", [key for key in ENDPOINTS if key is not ApiKey.API_VERSIONS])
def test_a_version_that_is_not_spoken_closes_the_connection(key: ApiKey) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        versions = APIS[key].versions
        for version in (versions[0] - 1, versions[-1] + 1, -1, 32_767):
            with pytest.raises(CloseConnection):
                await scene.ask_bytes(key, version, memoryview(b"\0" * 100))

    run(scenario)


@pytest.mark.parametrize("key", ENDPOINTS)
def test_a_body_that_ends_too_soon_closes_the_connection(key: ApiKey) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        version = APIS[key].versions[-1]
        with pytest.raises(ProtocolError):
            await scene.ask_bytes(key, version, memoryview(b"\x7f"))

    run(scenario)


def test_apis_without_idempotence_leave_out_producer_ids() -> None:
    assert ApiKey.INIT_PRODUCER_ID in advertised(BrokerOptions())
    assert ApiKey.INIT_PRODUCER_ID not in advertised(BrokerOptions(idempotence=False))


def test_produce_is_advertised_from_0_although_0_is_not_spoken() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        found = await scene.ask_bytes(ApiKey.API_VERSIONS, 0, memoryview(b""))
        assert isinstance(found, ApiVersionsResponse)
        ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in found.api_keys}
        assert ranges[ApiKey.PRODUCE] == (0, 13)
        with pytest.raises(CloseConnection):
            await scene.ask_bytes(ApiKey.PRODUCE, 0, memoryview(b"\0" * 100))

    run(scenario)


def test_options_that_make_no_sense_are_refused() -> None:
    for options in ({"num_partitions": 0}, {"default_replication_factor": 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            BrokerOptions(**options)  # type: ignore[arg-type] # a table of numbers


def test_the_table_has_every_api_of_the_codec_but_sasl() -> None:
    assert set(ApiKey) - set(ENDPOINTS) == {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
    assert {key: endpoint.versions for key, endpoint in ENDPOINTS.items()} == {
        key: APIS[key].versions for key in ENDPOINTS
    }


@pytest.mark.parametrize("key", ENDPOINTS)
def test_a_handlers_first_line_says_its_key_and_versions(key: ApiKey) -> None:
    module = import_module(f"lakelog.broker.{key.name.lower()}")
    versions = ENDPOINTS[key].versions
    least, most = versions[0], versions[-1]
    said = {f"version {least}", f"versions {least} to {most}", f"versions {least} and {most}"}
    head = (module.__doc__ or "").splitlines()[0]
    start, _, rest = head.partition(", ")
    assert start == f"{APIS[key].name} ({key})"
    assert any(rest.startswith(one) for one in said), head
