"""The directory of a session is gone after it, whatever ended its process."""

import subprocess
import sys
from pathlib import Path

from lakelog.pipeline.spark.session import SparkDirectory

HOLD = """
import sys
from pathlib import Path
from lakelog.pipeline.spark.session import SparkDirectory
print(SparkDirectory(Path(sys.argv[1])).path, flush=True)
sys.stdin.read()
"""


def test_a_directory_is_made_filled_and_removed(tmp_path: Path) -> None:
    directory = SparkDirectory(tmp_path)
    directory.write("settings", "a = 1")
    assert (directory.path / "settings").read_text() == "a = 1"
    directory.remove()
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_has_is_kept(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        path = Path(other.stdout.readline().strip())
        SparkDirectory(tmp_path).remove()
        assert path.is_dir()
        other.kill()
        other.wait()
        assert path.is_dir()
        SparkDirectory(tmp_path).remove()
        assert not path.exists()
