"""How often servers are asked at the start, and who takes changes of topics."""

import asyncio

import pytest
from tests.kafka_client.scripted import Asked, HangUp, scripted

from lakelog.clock import SeededEntropy, SystemClock
from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.kafka_client.failures import Unreachable
from lakelog.kafka_client.settings import ClientSettings
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.metadata import MetadataResponse, MetadataResponseBroker


def cluster(server: object) -> KafkaCluster:
    settings = ClientSettings.parse({"bootstrap.servers": str(server), "retry.backoff.ms": 1})
    return KafkaCluster(settings, clock=SystemClock(), entropy=SeededEntropy("cluster"))


@pytest.mark.parametrize("failures_max", [1, 3])
def test_no_server_is_asked_more_often_than_was_said(failures_max: int) -> None:
    def hang_up(_: Asked) -> None:
        raise HangUp

    async def run() -> int:
        async with scripted({ApiKey.METADATA: hang_up}) as broker:
            made = cluster(broker.endpoint)
            with pytest.raises(Unreachable, match="closed the connection at Metadata"):
                await made.start(failures_max=failures_max)
            await made.close()
            return broker.connections

    assert asyncio.run(asyncio.wait_for(run(), 20)) == failures_max


@pytest.mark.parametrize("controller", [1, 2, 3, -1])
def test_changes_go_to_the_controller_or_to_any_broker(controller: int) -> None:
    async def run() -> None:
        async with scripted({}) as other:
            brokers = [MetadataResponseBroker(2, other.endpoint.host, other.endpoint.port)]

            def metadata(_: Asked) -> MetadataResponse:
                return MetadataResponse(brokers=tuple(brokers), controller_id=controller)

            async with scripted({ApiKey.METADATA: metadata}) as first:
                here = first.endpoint
                brokers.append(MetadataResponseBroker(1, here.host, here.port))
                made = cluster(here)
                await made.start()
                connection = await made.controller()
                assert connection.endpoint == (other.endpoint if controller == 2 else here)
                await made.close()

    asyncio.run(run())
