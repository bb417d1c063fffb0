"""A broker whose data is taken away while it runs: it acknowledges nothing more, and ends."""

import asyncio
import shutil
from pathlib import Path

import pytest
from tests.cli.test_serve import PATIENCE_S, serving

from lakelog.kafka_client.dialing import dial
from lakelog.kafka_client.failures import BrokerError, Unreachable
from lakelog.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


@pytest.mark.proof
@pytest.mark.parametrize("lost", ["metadata.db", "objects"])
def test_a_broker_whose_data_is_removed_ends_with_the_reason(tmp_path: Path, lost: str) -> None:
    async def scenario(port: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                await created(port)

    async def created(port: int) -> None:
        """Write: a lost metadata file is noticed by the first; checkpoints are objects."""
        async with await dial(f"127.0.0.1:{port}") as client:
            for number in range(1_000_000):
                topic = CreatableTopic(f"t-{number}", 1, -1)
                request = CreateTopicsRequest((topic,), timeout_ms=5_000)
                answer = await client.call(request, CreateTopicsResponse)
                assert lost != "metadata.db" or answer.topics[0].error_code != 0

    settings = ("--http", "", "--set", "domain.checkpoint_records=4")
    with serving(*settings, data=tmp_path) as (process, port):
        path = tmp_path / lost
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        with pytest.raises(
            (Unreachable, BrokerError, ConnectionError, asyncio.IncompleteReadError)
        ):
            asyncio.run(scenario(port))
        assert process.wait(PATIENCE_S) == 1
        assert process.stderr is not None
        said = process.stderr.read()
    assert f"{path} was removed or replaced while it was in use" in said
    assert '"event":"failed"' in said.replace(" ", "")
    assert "Traceback" not in said
