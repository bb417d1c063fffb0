"""The short form of `python -m tests.spark.sink_kills`."""

from pathlib import Path

import pytest
from tests.spark.sink_kills import kill_often


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_a_sink_that_is_killed_between_two_commits_has_every_record_once(tmp_path: Path) -> None:
    killed, lines = kill_often(["between"], 1, tmp_path, say=print)
    assert killed.total() == 1
    assert lines == 40
