"""A contestant is warmed by its load, and its directory stays within its budget."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from bench.arena import QUICK, Arm, Contestant
from bench.broker import ProcessBroker

from bench import arena

BUDGET = 64 << 10
RUN = 8 << 10


class BrokerOnPaper:
    """A broker that only writes files; every topic is one."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.data.mkdir()
        self.events: list[str] = []

    def wait_ready(self) -> None:
        self.events.append("ready")

    def settle(self) -> None:
        self.events.append("settled")

    def stop(self) -> None:
        self.events.append("stopped")

    def write(self) -> None:
        self.events.append("run")
        (self.data / f"{len(self.events)}").write_bytes(b"x" * RUN)


@pytest.fixture
def births(monkeypatch: pytest.MonkeyPatch) -> list[BrokerOnPaper]:
    monkeypatch.setattr(arena, "DATA_BYTES_MAX", BUDGET)
    monkeypatch.setattr(arena, "DELETE_POLL_S", 0.0)
    return []


def contestant(
    folder: Path,
    births: list[BrokerOnPaper],
    run: Callable[[BrokerOnPaper], float],
    delete_s: float,
) -> Contestant:
    def launch(data: Path, _: int | None) -> ProcessBroker:
        births.append(BrokerOnPaper(data))
        return cast("ProcessBroker", births[-1])

    def warm_up(broker: ProcessBroker, _: float) -> float:
        return run(cast("BrokerOnPaper", broker))

    scale = replace(QUICK, warm_up_seconds=40.0, bytes_max=RUN)
    return Contestant(Arm("ours", launch, delete_s), folder, warm_up, scale)


def test_runs_of_the_load_are_added_up_to_the_seconds_of_a_warm_up(
    tmp_path: Path, births: list[BrokerOnPaper]
) -> None:
    def run(broker: BrokerOnPaper) -> float:
        broker.events.append("run")
        return 15.0

    contestant(tmp_path, births, run, 0.0).begin()
    assert births[0].events == ["ready", "run", "run", "run", "settled"]


def test_a_warm_up_that_stays_on_disk_ends_at_a_quarter_of_the_budget(
    tmp_path: Path, births: list[BrokerOnPaper]
) -> None:
    def run(broker: BrokerOnPaper) -> float:
        broker.write()
        return 0.1

    contestant(tmp_path, births, run, 0.0).begin()
    assert births[0].events.count("run") == BUDGET // 4 // RUN + 1


def test_who_deletes_soon_is_waited_for_and_warmed_in_full(
    tmp_path: Path, births: list[BrokerOnPaper], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(broker: BrokerOnPaper) -> float:
        broker.write()
        return 4.0

    def delete(_: float) -> None:
        for file in births[0].data.iterdir():
            file.unlink()

    monkeypatch.setattr("bench.arena.time.sleep", delete)
    contestant(tmp_path, births, run, 1e9).begin()
    assert births[0].events.count("run") == 10
    assert len(births) == 1


def test_a_run_that_may_outgrow_the_budget_gets_a_fresh_broker(
    tmp_path: Path, births: list[BrokerOnPaper]
) -> None:
    def run(broker: BrokerOnPaper) -> float:
        broker.write()
        return 40.0

    mine = contestant(tmp_path, births, run, 0.0)
    mine.begin()
    for _ in range(6):
        mine.make_room()
        births[-1].write()
        assert len(births) == 1
    births[0].write()
    mine.make_room()
    assert len(births) == 2
    assert births[0].events[-1] == "stopped"
    assert not births[0].data.exists()
    assert births[1].events == ["ready", "run", "settled"]
