"""What a worker keeps, and whose credentials it uses."""

import asyncio
from pathlib import Path

import pytest

from lakelog.model.failures import Refused
from lakelog.pipeline.spark import executor_job
from lakelog.pipeline.spark.executor_job import (
    StoreAddress,
    WorkerRuntime,
    runtime_of,
    worker_options,
)

KEYS = (("access_key_id", "sent"), ("region", "r"), ("secret_access_key", "sent"))


def test_credentials_of_the_executor_win_over_those_that_travelled() -> None:
    address = StoreAddress("s3://bucket", KEYS, is_elsewhere=True)
    assert worker_options(address, {}) == dict(KEYS)
    assert worker_options(address, {"AWS_ACCESS_KEY_ID": "own"}) == {"region": "r"}


def test_on_this_machine_what_the_user_configured_counts() -> None:
    address = StoreAddress("s3://bucket", KEYS, is_elsewhere=False)
    assert worker_options(address, {"AWS_ACCESS_KEY_ID": "another"}) == dict(KEYS)


def test_a_store_is_opened_once_and_used_by_every_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_job, "_runtimes", {})
    address = StoreAddress(f"file:{tmp_path}", (), is_elsewhere=False)
    runtime = runtime_of(address)
    assert runtime_of(address) is runtime

    async def put() -> asyncio.AbstractEventLoop:
        await runtime.objects.put("a", [b"x"])
        return asyncio.get_running_loop()

    assert runtime.run(put()) is runtime.run(put())
    assert (tmp_path / "a").read_bytes() == b"x"
    runtime.close()


def test_files_are_built_where_spark_has_its_own(tmp_path: Path) -> None:
    address = StoreAddress(f"file:{tmp_path}", (), is_elsewhere=False)
    for listed, expected in (
        (f"/no/such/place,{tmp_path}", str(tmp_path)),
        ("/no/such/place", None),
        ("", None),
    ):
        runtime = WorkerRuntime(address, {"SPARK_LOCAL_DIRS": listed})
        assert runtime.directory == expected
        runtime.close()


def test_a_store_that_cannot_be_opened_is_refused_and_not_kept() -> None:
    address = StoreAddress("gopher://hole", (), is_elsewhere=False)
    for _ in range(2):
        with pytest.raises(Refused, match="gopher"):
            runtime_of(address)
