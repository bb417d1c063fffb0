"""Replacing files and moving a table: one snapshot each, with exactly the files it should have."""

from dataclasses import replace as changed
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import StaticTable
from tests.catalog.kit import (
    DEFINITION,
    NAME,
    TOPIC_ID,
    Weather,
    advance,
    appended,
    appending,
    facts,
    loaded,
    made,
    on_disk,
    run,
    stored,
)
from tests.catalog.replaced import (
    OTHERS,
    filled,
    keys,
    look,
    merged,
    moving,
    replacing,
    rewrite,
    small,
)
from tests.profiles import examples

from lakelog.catalog.builtin import BuiltinCatalog
from lakelog.catalog.live_files import token_of
from lakelog.catalog.port import DataFileFacts, Replacement
from lakelog.model.failures import Conflict, Refused


@pytest.mark.parametrize(
    ("replacement", "operation", "after"),
    [
        (rewrite(0, 5, 15), "replace", (small(0, 0), merged(0, 5, 15), small(0, 15))),
        (
            Replacement(
                0,
                tuple(small(0, start).key for start in (0, 5, 10, 15)),
                (merged(0, 0, 8, rows=3), merged(0, 8, 20, rows=4)),
                drops_rows=True,
            ),
            "overwrite",
            (merged(0, 0, 8), merged(0, 8, 20)),
        ),
        (
            Replacement(0, (small(0, 0).key,), (), drops_rows=True),
            "delete",
            (small(0, 5), small(0, 10), small(0, 15)),
        ),
    ],
)
def test_a_replacement_is_one_snapshot_with_the_vector_as_it_was(
    replacement: Replacement, operation: str, after: tuple[DataFileFacts, ...]
) -> None:
    async def work() -> None:
        there = await filled()
        before = await there.with_catalog(loaded)
        view = await there.with_catalog(replacing(replacement))
        assert view.vector == {0: 20, 1: 20}
        assert view.token != token_of(before)
        newest = view.snapshots[-1]
        assert (newest.operation, newest.vector) == (operation, {0: 20, 1: 20})
        assert newest.snapshot_id == view.snapshot_id
        assert await look(there) == (keys(*after, *OTHERS), {0: 20, 1: 20})
        table = await there.with_catalog(loaded)
        snapshot = table.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        rows = sum(file.row_count for file in replacement.added)
        gone = 5 * len(replacement.removed)
        assert snapshot.summary["total-records"] == str(40 - gone + rows)
        assert snapshot.summary["total-data-files"] == str(len(after) + len(OTHERS))
        assert snapshot.summary["deleted-records"] == str(gone)
        assert snapshot.summary["lakelog.commit_id"] == "round-1"

    run(work)


def sequences(catalog: BuiltinCatalog) -> tuple[dict[str, int | None], list[str]]:
    """The sequence number of each live file, and the files that the newest snapshot removed."""
    table = loaded(catalog)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    numbers, removed = {}, []
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
            key = entry.data_file.file_path.removeprefix("memory:///")
            if entry.status is ManifestEntryStatus.DELETED:
                removed += [key] if entry.snapshot_id == snapshot.snapshot_id else []
            else:
                numbers[key] = entry.sequence_number
    return numbers, sorted(removed)


@pytest.mark.parametrize("files", [4, 11])
def test_a_replacement_says_which_files_it_removed_and_when_the_others_came(files: int) -> None:
    async def work() -> None:
        there = await filled(partitions=1, files=files)
        before, _ = await there.with_catalog(sequences)
        await there.with_catalog(replacing(rewrite(0, 5, 15)))
        after, removed = await there.with_catalog(sequences)
        assert removed == keys(small(0, 5), small(0, 10))
        assert after.pop(merged(0, 5, 15).key) == files + 1
        assert after == {key: number for key, number in before.items() if key not in removed}
        await there.with_catalog(appending(advance(0, 5 * files, 5 * files + 5)))
        assert (await there.with_catalog(sequences))[1] == []

    run(work)


def test_a_move_is_a_snapshot_with_the_same_files() -> None:
    async def work() -> None:
        for there, vector in ((await filled(), {0: 20, 1: 20}), (await made(), {})):
            before = await look(there)
            token = token_of(await there.with_catalog(loaded))
            view = await there.with_catalog(moving)
            assert view.token != token
            assert view.snapshots[-1].vector == view.vector == vector
            assert await look(there) == before

    run(work)


def test_a_missing_input_is_a_conflict_and_nothing_is_written() -> None:
    async def work() -> None:
        there = await filled()
        await there.with_catalog(replacing(rewrite(0, 0, 10)))
        for replacement in (
            rewrite(0, 5, 15),  # one of two is gone
            rewrite(1, 15, 25),  # one was never there
            Replacement(1, (small(0, 10).key,), (), drops_rows=True),  # another partition's
            rewrite(2, 0, 5),
        ):
            weather = Weather()
            with pytest.raises(Conflict):
                await there.with_catalog(replacing(replacement), weather=weather)
            assert {kind for kind, _ in weather.asked} == {"key-get", "get"}
        empty = await made()
        with pytest.raises(Conflict):
            await empty.with_catalog(replacing(rewrite(0, 0, 5)))

    run(work)


@pytest.mark.parametrize(
    "added",
    [
        merged(0, 5, 15, rows=9),
        merged(0, 5, 16),
        merged(0, 4, 14),
        merged(0, 5, 14),
        merged(0, 25, 35),
    ],
)
def test_files_that_cannot_hold_the_same_rows_are_refused(added: DataFileFacts) -> None:
    async def work() -> None:
        there = await filled()
        before = await there.keys()
        wrong = changed(rewrite(0, 5, 15), added=(added,))
        with pytest.raises(Refused):
            await there.with_catalog(replacing(wrong))
        assert await there.keys() == before

    run(work)


def test_more_rows_than_before_are_refused_where_rows_may_vanish() -> None:
    async def work() -> None:
        there = await filled()
        one, rest = small(0, 0).key, merged(0, 0, 5)
        await there.with_catalog(
            replacing(Replacement(0, (one,), (changed(rest, row_count=2),), drops_rows=True))
        )
        more = changed(small(0, 0), row_count=3)
        with pytest.raises(Refused):
            await there.with_catalog(
                replacing(Replacement(0, (rest.key,), (more,), drops_rows=True))
            )

    run(work)


def manifest_count(catalog: BuiltinCatalog) -> int:
    table = loaded(catalog)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return len(snapshot.manifests(table.io))


@pytest.mark.proof
def test_hundreds_of_replacements_keep_few_manifests_and_lose_nothing() -> None:
    async def work() -> None:
        there = await made()
        await there.with_catalog(appending(*(advance(p, 0, 5) for p in range(4))))
        counts, gets = [], []
        for number in range(200):
            partition, start = number % 4, 5 * (number // 4)
            weather = Weather()
            await there.with_catalog(appending(advance(partition, start + 5, start + 10)))
            old = merged(partition, 0, start + 5).key if start else small(partition, 0).key
            whole = merged(partition, 0, start + 10)
            one = Replacement(
                partition, (old, small(partition, start + 5).key), (whole,), drops_rows=False
            )
            await there.with_catalog(replacing(one), weather=weather)
            counts.append(await there.with_catalog(manifest_count))
            gets.append(len(weather.asked))
        assert max(counts) <= 12
        assert max(gets[100:]) <= max(gets[:100])
        left = keys(*(merged(p, 0, 255) for p in range(4)))
        assert await look(there) == (left, dict.fromkeys(range(4), 255))

    run(work)


@settings(max_examples=examples(30), deadline=None)
@given(st.data())
def test_any_replacement_leaves_exactly_the_other_files_and_its_own(data: st.DataObject) -> None:
    async def work() -> None:
        there = await filled(partitions=3, files=3)
        files = {(p, 5 * n, 5 * n + 5): small(p, 5 * n).key for p in range(3) for n in range(3)}
        for _ in range(data.draw(st.integers(1, 5))):
            partition = data.draw(st.integers(0, 2))
            spans = sorted(span for span in files if span[0] == partition)
            first = data.draw(st.integers(0, len(spans) - 1))
            taken = spans[first : data.draw(st.integers(first + 1, len(spans)))]
            attempt = str(data.draw(st.uuids()))
            whole = facts(partition, taken[0][1], taken[-1][2], attempt=attempt)
            removed = tuple(files.pop(span) for span in taken)
            one = Replacement(partition, removed, (whole,), drops_rows=False)
            files[partition, whole.offset_first, whole.offset_end] = whole.key
            await there.with_catalog(replacing(one))
            assert await look(there) == (sorted(files.values()), dict.fromkeys(range(3), 15))

    run(work)


def test_other_engines_read_a_table_whose_files_were_replaced(tmp_path: Path) -> None:
    async def work() -> None:
        async with on_disk(tmp_path) as there:
            tables = there.tables()
            await tables.create(DEFINITION)
            parts = [await stored(there, 0, start, start + 10) for start in range(0, 50, 10)]
            for part in parts:
                await appended(tables, part)
            view = await tables.load(NAME)
            assert view is not None
            (whole,) = (await stored(there, 0, 20, 40)).files
            removed = tuple(part.files[0].key for part in parts[2:4])
            one = Replacement(0, removed, (whole,), drops_rows=False)
            done = await tables.replace(
                NAME, one, topic_id=TOPIC_ID, commit_id="c", expect=view.token
            )
            found = await tables.files(NAME, partition=0, start=15, end=45)
            await there.objects.delete(removed)
            spans = [(file.offset_first, file.offset_end) for file in found]
            assert spans == [(10, 20), (20, 40), (40, 50)]
            rows = StaticTable.from_metadata(done.metadata_location).scan().to_arrow()
            assert sorted(rows["offset"].to_pylist()) == list(range(50))
            await tables.close()

    run(work)
