"""Arrow columns of values that lie at places of one buffer, made without an object per value.

A view is 16 bytes: the length, then up to 12 bytes of the value itself, or its first four, the
number of the buffer that holds it and its place there. Filling them is the one step of decoding
that touches every key and value, so it is a kernel.
"""

from typing import TYPE_CHECKING, Final

import numpy as np

from lakelog.records import kernels

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.records.kernels import Bytes, Flags, Ints

VIEW_BYTES: Final = 16
VIEW_WORDS: Final = VIEW_BYTES // 4
INLINE_BYTES: Final = 12
"""A view holds a value up to this length itself."""

_PREFIX_BYTES: Final = 4


def fill_views(data: memoryview, starts: "Ints", ends: "Ints") -> "Ints":
    """The views of these places in `data`, four words each; a start of -1 is null, all zero."""
    views = np.zeros((len(starts), VIEW_WORDS), np.int32)
    native = kernels.native
    if native is None:
        fill_views_in_numpy(np.frombuffer(data, np.uint8), starts, ends, views)
    else:
        native.fill_views(data, starts, ends, views)
    return views


def fill_views_in_numpy(data: "Bytes", starts: "Ints", ends: "Ints", views: "Ints", /) -> None:
    """The kernel's twin."""
    lengths = ends - starts
    content = views.view(np.uint8)
    views[:, 0] = lengths
    short = lengths <= INLINE_BYTES
    for rows, width in ((short, INLINE_BYTES), (~short, _PREFIX_BYTES)):
        steps = np.arange(width)
        inside = steps < lengths[rows, None]
        wanted = np.where(inside, starts[rows, None] + steps, 0)
        found = np.where(inside, data[wanted], 0) if len(data) else 0
        content[rows, 4 : 4 + width] = found
    views[~short, 2] = 0
    views[~short, 3] = starts[~short]


def view_array(views: "Ints", nulls: "Flags | None", data: memoryview) -> "pa.Array":
    """The column of these views into `data`; without nulls no value is null."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    valid = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    parts = [valid, pa.py_buffer(views), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view(), len(views), parts)


def copied_column(data: memoryview, starts: "Ints", ends: "Ints") -> "pa.Array":
    """The bytes of these places, copied, as a list of values needs them: it holds no views."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    return view_array(fill_views(data, starts, ends), starts < 0, data).cast(pa.binary())


def text_column(keys: "pa.Array") -> "tuple[pa.Array, Flags | None]":
    """The keys of headers as text, and which of them are not UTF-8, None when all are.

    Those have replacement characters where they are not.
    """
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    try:
        return keys.cast(pa.string()), None
    except pa.ArrowInvalid:
        # Rare, and the keys of headers are few: each one is decoded once.
        different = keys.dictionary_encode()
    found = different.dictionary.to_pylist()
    texts = [key.decode(errors="replace") for key in found]
    same = [text.encode() == key for text, key in zip(texts, found, strict=True)]
    bad = ~np.array(same, np.bool_)[different.indices.to_numpy()]
    return pa.array(texts, pa.string()).take(different.indices), bad


def view_lengths(column: "pa.Array") -> "Ints":
    """The length of every value of a binary view column, 0 for null."""
    words = np.frombuffer(column.buffers()[1], np.int32).reshape(-1, VIEW_WORDS)
    lengths: Ints = words[column.offset : column.offset + len(column), 0]
    if column.null_count:
        lengths = np.where(column.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    return lengths
