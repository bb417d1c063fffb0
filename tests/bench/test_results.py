"""The table says the ratio first, and what is missing."""

import json
from pathlib import Path

import pytest
from bench.peer import version_order
from bench.results import Metric, Recorder, Sample, percentiles_ms, table

METRICS = (Metric("speed", "MB/s"), Metric("wait", "ms", more_is_better=False))


def test_the_ratio_is_of_medians_and_ours_is_above() -> None:
    samples = [
        Sample("b", "cell", arm, number, {"speed": value})
        for arm, values in (("ours", (10, 20, 90)), ("kafka", (5, 10, 11)))
        for number, value in enumerate(values)
    ]
    row = table(samples, METRICS).splitlines()[2]
    assert "2.00x" in row
    assert "20 [10..90]" in row
    assert "10 [5..11]" in row
    assert "+speed MB/s" in row


def test_a_missing_peer_is_named_and_has_no_ratio() -> None:
    row = table([Sample("b", "cell", "ours", 0, {"wait": 3.0})], METRICS).splitlines()[2]
    assert row.split() == ["cell", "-wait", "ms", "-", "3", "absent"]


def test_every_sample_is_one_json_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder(tmp_path / "out.jsonl", {"kafka": "absent"})
    for number in range(2):
        recorder.add(Sample("b", "cell", "ours", number, {"speed": 1.0}))
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [0, 1]
    assert lines[0]["environment"] == {"kafka": "absent"}
    assert "speed=1" in capsys.readouterr().out


def test_percentiles_are_of_the_ordered_values() -> None:
    assert percentiles_ms([each / 1e3 for each in range(1000, 0, -1)]) == (501.0, 991.0, 1000.0)
    assert percentiles_ms([]) == (0.0, 0.0, 0.0)


def test_versions_are_ordered_as_numbers() -> None:
    assert max(["4.3.1", "4.10.0", "4.9.2"], key=version_order) == "4.10.0"
