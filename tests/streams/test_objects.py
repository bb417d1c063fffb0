"""Objects by row: WAL ids packed, files by key, both given back as they came."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lakelog.model.ids import WalId
from lakelog.streams.objects import FileKind, FileName, ObjectName, ObjectTable, WalName, digest

names = st.one_of(
    st.builds(WalName, st.binary(min_size=16, max_size=16).map(WalId), st.sampled_from("abc")),
    st.builds(
        FileName,
        st.sampled_from((FileKind.SEGMENT, FileKind.PARQUET)),
        st.text(min_size=1, max_size=9),
    ),
)


@given(st.lists(names, min_size=1), st.data())
def test_names_and_sizes_survive_packing_and_copies(
    given_names: list[ObjectName], data: st.DataObject
) -> None:
    table = ObjectTable()
    rows = [table.add(name, size_bytes=size) for size, name in enumerate(given_names)]
    assert [table.name(row) for row in rows] == given_names
    kept = sorted(data.draw(st.sets(st.sampled_from(rows))))
    copy = table.copied()
    table.pack(np.array(kept, dtype=np.int64))
    assert [table.name(row) for row in range(len(kept))] == [given_names[row] for row in kept]
    assert [table.size_bytes(row) for row in range(len(kept))] == kept
    assert [copy.name(row) for row in rows] == given_names


def test_digests_tell_objects_apart() -> None:
    wal = WalName(WalId(b"a" * 16), "zone")
    assert digest(wal) == digest(WalName(WalId(b"a" * 16), "other zone"))
    others: list[ObjectName] = [
        WalName(WalId(b"b" * 16), "zone"),
        FileName(FileKind.PARQUET, "a" * 16),
        FileName(FileKind.PARQUET, "a" * 15),
    ]
    assert len({digest(wal), *map(digest, others)}) == 4
