"""A stream that is killed twice; `python -m tests.spark.stream_kills` does it fifty times."""

from pathlib import Path

import pytest
from tests.spark.stream_kills import kill_often


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_a_stream_that_is_killed_ends_with_every_record_exactly_once(tmp_path: Path) -> None:
    said: list[str] = []
    assert kill_often(["offsets", "worker"], 3, tmp_path, say=said.append) > 100
    assert len(said) == 2
