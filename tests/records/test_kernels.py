"""The compiled kernels are there, refuse what they cannot read, and can be done without."""

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.kernels import TARGETS
from tests.profiles import examples
from tests.sides import native

import lakelog
from lakelog.records.kernels import DONE

DATA = bytes(range(40))


def longs(*shape: int) -> Any:
    return np.zeros(shape, np.int64)


def ints(*shape: int) -> Any:
    return np.zeros(shape, np.int32)


def flags(*shape: int) -> Any:
    return np.zeros(shape, np.bool_)


def columns(rows: int) -> tuple[Any, ...]:
    return longs(2, rows), ints(2, rows, 4), flags(rows), flags(rows), ints(2, rows)


def source(rows: int = 3) -> tuple[Any, ...]:
    return 0, longs(rows), None, longs(rows), ints(rows, 4), ints(rows, 4), None, None


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


def unaligned(count: int) -> Any:
    return np.frombuffer(bytearray(8 * count + 1), np.int64, count, 1)


BLOBS = (b"", b"", b"", b"")
WRONG: dict[str, tuple[str, tuple[Any, ...]]] = {
    "too few arguments": ("scan", (DATA, 0, 0)),
    "no buffer": ("scan", (7, 0, 0, 1, (0, 0, 0, 0))),
    "no numbers": ("scan", (DATA, "0", 0, 1, (0, 0, 0, 0))),
    "a position behind the end": ("scan", (DATA, 41, 0, 1, (0, 0, 0, 0))),
    "a position before the start": ("scan", (DATA, -1, 0, 1, (0, 0, 0, 0))),
    "limits that are not four": ("scan", (DATA, 0, 0, 1, (0, 0, 0))),
    "fewer places than timestamps": ("fill_columns", (DATA, 0, longs(4), ints(7, 3))),
    "six rows of places": ("fill_columns", (DATA, 0, longs(4), ints(6, 4))),
    "flat places": ("fill_columns", (DATA, 0, longs(4), ints(28))),
    "items of another size": ("fill_columns", (DATA, 0, ints(4), ints(7, 4))),
    "items that do not follow each other": ("fill_columns", (DATA, 0, longs(8)[::2], ints(7, 4))),
    "items at odd places": ("fill_columns", (DATA, 0, unaligned(4), ints(7, 4))),
    "what may not be written": ("fill_columns", (DATA, 0, read_only(longs(4)), ints(7, 4))),
    "more headers than room": ("fill_headers", (DATA, ints(7, 1) + 1, ints(4, 0))),
    "an end behind the data": ("fill_views", (DATA, ints(1), ints(1) + 41, ints(1, 4))),
    "an end before its start": ("fill_views", (DATA, ints(1) + 2, ints(1) + 1, ints(1, 4))),
    "too few views": ("fill_views", (DATA, ints(2), ints(2), ints(1, 4))),
    "a key behind its blob": (
        "write_records",
        (longs(8, 1) + 1, BLOBS, longs(4, 1), bytearray(99)),
    ),
    "headers that are not there": (
        "write_records",
        (longs(8, 1) - 1, BLOBS, longs(4, 0), bytearray(99)),
    ),
    "three blobs": ("write_records", (longs(8, 1), BLOBS[:3], longs(4, 0), bytearray(99))),
    "too little room": ("write_records", (longs(8, 1), BLOBS, longs(4, 0), bytearray(6))),
    "a null place": ("hash_places", (DATA, longs(1) - 1, longs(1), np.zeros(1, np.uint32))),
    "too few hashes": ("hash_places", (DATA, longs(1), longs(1), np.zeros(0, np.uint32))),
    "a table of nine rows": ("walk_batches", (DATA, longs(9, 4))),
    "a run's table of three rows": ("walk_run", (DATA, 0, longs(3, 4))),
    "four columns": ("fill_rows", (DATA, longs(10, 1), 0, columns(2)[:4])),
    "columns of different lengths": (
        "fill_rows",
        (DATA, longs(10, 1), 0, (*columns(2)[:4], ints(2, 1))),
    ),
    "an order of another length": ("stable_order", (longs(4), ints(3))),
    "a source with too few offsets": ("row_source", (*source()[:3], longs(2), *source()[4:])),
    "a source without keys": ("row_source", (*source()[:4], None, *source()[5:])),
    "a source that is none": ("choose_rows", ((None,), longs(2, 1), (0, 0), 1)),
    "a list of sources": ("merge_rows", ([], longs(2, 0), ints(0), ints(0), longs(0))),
    "no rows wanted": ("choose_rows", ((), longs(2, 0), (0, 0), 0)),
    "no such field": ("gather_rows", ((), 5, ints(0), ints(0), longs(0))),
    "a row of no source": ("gather_rows", ((), 0, ints(1), ints(1), longs(1))),
}


def test_the_stub_has_every_function_and_no_other() -> None:
    stub = ast.parse((Path(lakelog.__file__).parent / "_native.pyi").read_text())
    (native_class,) = (
        node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == "Native"
    )
    typed = {node.name for node in native_class.body if isinstance(node, ast.FunctionDef)}
    assert typed == {name for name in dir(native()) if not name.startswith("_")}


@pytest.mark.parametrize(("name", "arguments"), WRONG.values(), ids=WRONG)
def test_arguments_that_a_kernel_cannot_read_are_refused(
    name: str, arguments: tuple[Any, ...]
) -> None:
    kernel: Callable[..., object] = getattr(native(), name)
    with pytest.raises((TypeError, ValueError)):
        kernel(*arguments)


def test_spans_and_rows_outside_their_source_are_refused() -> None:
    sources = (native().row_source(*source()),)
    for spans in ([[0], [4]], [[-1], [3]], [[2], [1]]):
        with pytest.raises(ValueError, match="span"):
            native().choose_rows(sources, np.array(spans, np.int64), (9, 9), 5)
    with pytest.raises(ValueError, match="rows than there is room for"):
        native().merge_rows(sources, np.array([[0], [3]]), ints(2), ints(2), longs(2))
    for number, row in ((1, 0), (-1, 0), (0, 3), (0, -1)):
        with pytest.raises(ValueError, match="not in its source"):
            native().gather_rows(sources, 0, ints(1) + number, ints(1) + row, longs(1))


def test_a_source_keeps_its_arrays() -> None:
    made = native().row_source(0, longs(1), None, longs(1) + 7, ints(1, 4), ints(1, 4), None, None)
    output = longs(1)
    native().gather_rows((made,), 0, ints(1), ints(1), output)
    assert output.tolist() == [7]


@settings(deadline=None)
@given(st.binary(max_size=9_000), st.integers(0, 8), st.integers(0, (1 << 32) - 1))
def test_checksums_are_those_of_the_library(data: bytes, start: int, before: int) -> None:
    part = memoryview(data)[start:]
    assert native().crc32c(part, before) == crc32c(part, before)


@pytest.mark.parametrize("target", TARGETS)
@settings(deadline=None, max_examples=examples(300))
@given(chance=st.randoms(use_true_random=False))
def test_hostile_arguments_are_refused_or_read_as_the_twin_reads_them(
    target: str, chance: Any
) -> None:
    TARGETS[target](chance)


def test_without_the_extension_the_twins_do_the_work() -> None:
    code = (
        "import sys; sys.modules['lakelog._native'] = None\n"
        "from lakelog.records import kernels, scan\n"
        "assert kernels.native is None and '_native' in kernels.missing_because\n"
        "print(scan.scan_records(memoryview(b''), 0, (0, 0, 0, 0))[0])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(said.stdout) == DONE
