"""The clock of a directory: jumps ahead are not believed, everything true is (rule 20)."""

import asyncio
from pathlib import Path

import pytest

from lakelog.clock import SystemClock, SystemEntropy, SystemUptime, agreed_now_ms
from lakelog.objects.local import LocalObjectStore
from lakelog.objects.local_clock import FILE, JUMP_MAX_MS, SETTLE_S, LocalClock
from lakelog.objects.local_files import make_root
from lakelog.objects.port import probe

DAY_MS = 24 * 3_600_000
BEGAN_MS = 1_700_000_000_000


class Machine:
    """A machine whose clock a test sets; it is its own clock and uptime."""

    def __init__(self) -> None:
        self.right_ms = BEGAN_MS
        self.wrong_ms = 0
        self.boots = 1
        self.up_s = 100.0

    def now_ms(self) -> int:
        return self.right_ms + self.wrong_ms

    def monotonic_s(self) -> float:
        return self.up_s

    def boot(self) -> str:
        return f"boot-{self.boots}"

    def uptime_s(self) -> float:
        return self.up_s

    def run(self, seconds: float) -> None:
        """Time passes; a suspended machine counts it too."""
        self.right_ms += int(seconds * 1000)
        self.up_s += seconds

    def reboot(self, off_s: float) -> None:
        self.right_ms += int(off_s * 1000)
        self.boots += 1
        self.up_s = 1.0


@pytest.fixture
def machine() -> Machine:
    return Machine()


def process(machine: Machine, root: Path) -> LocalClock:
    make_root(str(root))
    return LocalClock(str(root), machine, machine, jump_max_ms=JUMP_MAX_MS)


def test_a_jump_ahead_is_not_believed_and_heals_by_itself(machine: Machine, tmp_path: Path) -> None:
    clock = process(machine, tmp_path)
    assert clock.skew_ms() == 0
    machine.run(300)
    machine.wrong_ms = 30 * DAY_MS
    assert clock.skew_ms() == -30 * DAY_MS
    machine.run(40 * 86_400)
    assert clock.skew_ms() == -30 * DAY_MS  # however long it lasts
    machine.wrong_ms = 0
    assert clock.skew_ms() == 0


def test_a_restart_of_the_process_in_the_same_boot_changes_nothing(
    machine: Machine, tmp_path: Path
) -> None:
    assert process(machine, tmp_path).skew_ms() == 0
    machine.run(3 * 86_400)  # the broker was down, the machine was not
    assert process(machine, tmp_path).skew_ms() == 0
    machine.wrong_ms = 30 * DAY_MS
    assert process(machine, tmp_path).skew_ms() == -30 * DAY_MS


def test_a_suspend_is_no_jump(machine: Machine, tmp_path: Path) -> None:
    clock = process(machine, tmp_path)
    clock.skew_ms()
    machine.run(7 * 86_400)
    assert clock.skew_ms() == 0


def test_steps_below_the_limit_are_followed(machine: Machine, tmp_path: Path) -> None:
    clock = process(machine, tmp_path)
    for _ in range(5):
        assert clock.skew_ms() == 0
        machine.wrong_ms += JUMP_MAX_MS
    machine.wrong_ms += JUMP_MAX_MS + 1
    assert clock.skew_ms() == -(2 * JUMP_MAX_MS + 1)


def test_an_operator_accepts_a_clock_for_every_process(machine: Machine, tmp_path: Path) -> None:
    broker, pipeline = process(machine, tmp_path), process(machine, tmp_path)
    broker.skew_ms()
    machine.wrong_ms = 30 * DAY_MS
    assert broker.skew_ms() == pipeline.skew_ms() == -30 * DAY_MS
    process(machine, tmp_path).accept()
    assert broker.skew_ms() == pipeline.skew_ms() == 0


def test_after_a_boot_time_that_passed_is_believed_once_it_stood(
    machine: Machine, tmp_path: Path
) -> None:
    process(machine, tmp_path).skew_ms()
    machine.reboot(off_s=30 * 86_400)
    clock = process(machine, tmp_path)
    assert clock.skew_ms() < -29 * DAY_MS
    machine.run(SETTLE_S / 2)
    assert clock.skew_ms() < 0
    machine.run(SETTLE_S / 2)
    assert clock.skew_ms() == 0


def test_a_wrong_clock_that_is_corrected_after_a_boot_is_never_believed(
    machine: Machine, tmp_path: Path
) -> None:
    process(machine, tmp_path).skew_ms()
    machine.reboot(off_s=60)
    machine.wrong_ms = 30 * DAY_MS
    clock = process(machine, tmp_path)
    assert clock.skew_ms() < 0
    machine.run(SETTLE_S - 1)
    machine.wrong_ms = 90 * DAY_MS
    assert clock.skew_ms() < 0
    machine.run(SETTLE_S - 1)
    assert clock.skew_ms() < 0  # it moved, so it did not stand
    machine.wrong_ms = 0
    assert clock.skew_ms() == 0


def test_a_machine_without_a_battery_comes_back_from_1970(machine: Machine, tmp_path: Path) -> None:
    process(machine, tmp_path).skew_ms()
    machine.reboot(off_s=1200)
    machine.wrong_ms = -machine.right_ms
    clock = process(machine, tmp_path)
    assert clock.skew_ms() == 0  # behind: it deletes nothing that it should not
    machine.run(30)
    machine.wrong_ms = 0
    assert clock.skew_ms() == 0


def test_a_clock_set_back_and_right_again_is_no_jump(machine: Machine, tmp_path: Path) -> None:
    clock = process(machine, tmp_path)
    clock.skew_ms()
    machine.wrong_ms = -30 * DAY_MS
    assert clock.skew_ms() == 0
    machine.run(86_400)
    machine.wrong_ms = 0
    assert clock.skew_ms() == 0


def test_a_damaged_note_is_written_anew(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"\x00")
    clock = process(machine, tmp_path)
    assert clock.skew_ms() == 0
    machine.wrong_ms = 30 * DAY_MS
    assert clock.skew_ms() < 0


def test_a_store_with_a_clock_that_jumped_still_starts_and_hides_its_note(
    machine: Machine, tmp_path: Path
) -> None:
    async def scenario() -> None:
        entropy = SystemEntropy()
        store = await LocalObjectStore.open(tmp_path, machine, entropy, uptime=machine)
        machine.wrong_ms = 30 * DAY_MS
        assert await store.clock_skew_ms() == -30 * DAY_MS
        await probe(store, entropy)
        assert [info.key async for info in store.list("")] == []
        await store.close()

    asyncio.run(scenario())


def test_a_clock_that_comes_back_while_it_is_compared_is_not_used(machine: Machine) -> None:
    async def skew_ms() -> int:
        machine.wrong_ms = 0
        return 0

    machine.wrong_ms = 30 * DAY_MS
    assert asyncio.run(agreed_now_ms(machine, skew_ms, skew_max_ms=60_000)) is None
    assert asyncio.run(agreed_now_ms(machine, skew_ms, skew_max_ms=60_000)) == BEGAN_MS


def test_the_system_counts_on_and_names_its_boot() -> None:
    uptime = SystemUptime()
    before_s = uptime.uptime_s()
    assert uptime.boot() == SystemUptime().boot()
    assert uptime.uptime_s() >= before_s
    assert SystemClock().now_ms() > BEGAN_MS
