"""The cells of B1: every client is told the same, and one that is absent is left out by name."""

import pytest
from bench.arena import QUICK
from bench.franz_go import GoAbsentError
from bench.jobs import FranzGoJob, ProduceJob
from bench.produce_cells import CLIENTS, MIDDLE, SMALL, Shape, many_cells, told

from bench import produce_cells


def franz_go(shape: Shape) -> FranzGoJob:
    return FranzGoJob(**told(QUICK, shape, QUICK.bytes_max), program="p")


def test_a_client_of_many_partitions_has_a_cell_for_each_small_shape() -> None:
    middle, small = many_cells("franz-go", franz_go)
    assert [middle.name, small.name] == [
        f"many: franz-go, {shape.name}" for shape in (MIDDLE, SMALL)
    ]
    assert (middle.jobs, small.jobs) == ((franz_go(MIDDLE),), (franz_go(SMALL),))


def test_records_batches_and_limits_are_those_of_the_shape_and_the_scale() -> None:
    job = franz_go(SMALL)
    assert (job.record_bytes, job.batch_bytes, job.linger_ms) == (100, 1_000, 5.0)
    assert (job.seconds, job.bytes_max) == (QUICK.seconds, QUICK.bytes_max)


def test_the_two_producers_of_librdkafka_share_the_bytes() -> None:
    cell = produce_cells.produce_cells(QUICK)[0]
    assert len(cell.jobs) == CLIENTS
    assert all(isinstance(job, ProduceJob) for job in cell.jobs)
    assert sum(job.bytes_max for job in cell.jobs) == QUICK.bytes_max


def test_a_client_that_is_absent_is_named_and_the_other_one_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent() -> str:
        raise GoAbsentError("no Go here")

    monkeypatch.setattr(produce_cells, "franz_go_program", absent)
    monkeypatch.setattr(produce_cells, "java_cells", lambda _: many_cells("Java", franz_go))
    names = [cell.name for cell in produce_cells.foreign_cells(QUICK)]
    assert names == [f"many: Java, {shape.name}" for shape in (MIDDLE, SMALL)]
    assert capsys.readouterr().out == "  skipped, franz-go: no Go here\n"
