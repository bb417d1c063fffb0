"""`lakelog admin clock`: says whether a clock is believed, and accepts it."""

import re
from pathlib import Path

import msgspec
import pytest
from tests.cli.conftest import Command

from lakelog.clock import SystemClock, SystemUptime
from lakelog.objects.local_clock import FILE, TrustedTime
from lakelog.objects.local_files import make_root

MONTH_MS = 30 * 24 * 3_600_000


@pytest.fixture
def jumped(tmp_path: Path) -> Path:
    """A data directory whose note says that it should be a month earlier, in this boot."""
    uptime = SystemUptime()
    now_ms = SystemClock().now_ms()
    good = TrustedTime(1, now_ms - MONTH_MS, uptime.boot(), uptime.uptime_s())
    make_root(str(tmp_path / "objects"))
    (tmp_path / "objects" / FILE).write_bytes(msgspec.json.encode(good))
    return tmp_path


def test_a_clock_is_not_believed_until_it_is_accepted(command: Command, jumped: Path) -> None:
    place = ("admin", "clock", "--data", str(jumped))
    ran = command(*place)
    assert ran.code == 1
    found = re.search(r"is not believed: it is (\d+) s ahead", ran.out)
    assert found is not None
    assert abs(int(found[1]) - MONTH_MS // 1000) < 1000  # what passed since is between the two
    assert "is believed" in command(*place, "--accept").out
    assert command(*place).code == 0


def test_a_directory_that_is_not_there_is_told(command: Command, tmp_path: Path) -> None:
    ran = command("admin", "clock", "--data", str(tmp_path / "other"))
    assert ran.code == 1
    assert "name it with --data" in ran.err
