"""Planted bugs of the tables: what becomes a row and what does not."""

from tests.mutants.plant import Plant, plant

DELETED = ("tests/pipeline/test_rounds_deleted_records.py",)

ROWS: tuple[Plant, ...] = (
    plant(
        "a file has the rows that were deleted",
        "pipeline/files/build_file.py",
        "self._first = max(task.start, task.log_start)",
        "self._first = task.start",
        tests=DELETED,
    ),
    plant(
        "a damaged batch of a run becomes rows",
        "native/runs.c",
        "        int64_t size = batch_bytes(data, position, bytes, true);\n",
        "        int64_t size = batch_bytes(data, position, bytes, false);\n",
        tests=("tests/log/test_wal_source.py",),
    ),
    plant(
        "the rest of a run is dropped where enough is held",
        "pipeline/files/build_file.py",
        "        while first < end:\n",
        "        if first < end:\n",
        tests=("tests/pipeline/files",),
    ),
    plant(
        "a step does not say where the log begins",
        "pipeline/saga/steps.py",
        "return WriteFile(record, pieces, stream.log_start)",
        "return WriteFile(record, pieces)",
        tests=DELETED,
    ),
    plant(
        "a segment's rows are cut where its entry begins",
        "pipeline/files/file_writes.py",
        "log_start=write.step.log_start,",
        "log_start=write.step.log_start * (write.step.pieces[0].kind is FileKind.WAL),",
        tests=DELETED,
    ),
    plant(
        "what was deleted has to be readable",
        "pipeline/files/build_file.py",
        "if header.base_offset + header.last_offset_delta < self._first:",
        "if False:",
        tests=DELETED,
    ),
)

OPTIONS = ("tests/pipeline/test_process_options.py",)

SIZES: tuple[Plant, ...] = (
    plant(
        "small files may be any number",
        "pipeline/planning/small_files.py",
        "count = min(high - low - options.files_kept + 1, options.files_max)",
        "count = 0",
        tests=OPTIONS,
    ),
    plant(
        "the target size is a constant",
        "pipeline/process.py",
        "target = section.target_file_size_bytes",
        "target = 256 << 20",
        tests=OPTIONS,
    ),
    plant(
        "old WAL objects wait as long as their topic says",
        "pipeline/process.py",
        "object_age_ms_max=section.wal_max_age_ms",
        "object_age_ms_max=600_000",
        tests=OPTIONS,
    ),
    plant(
        "the interval is nobody's default",
        "config/options.py",
        "lakelog_table_freshness_ms=freshness_ms",
        "lakelog_table_freshness_ms=60_000",
        tests=OPTIONS,
    ),
)

STORES: tuple[Plant, ...] = (
    plant(
        "only S3 may be spoken to without TLS",
        "objects/remote.py",
        '("endpoint", "endpoint_url", "base_url")',
        '("endpoint", "endpoint_url")',
        tests=("tests/objects/test_remote.py",),
    ),
    plant(
        "a range that Azure does not have is tried again",
        "objects/remote.py",
        '    "Wanted range starting at",',
        '    "never said",',
        tests=("tests/objects/test_remote.py",),
    ),
)

CLOCKS: tuple[Plant, ...] = (
    plant(
        "log compaction believes any clock",
        "pipeline/maintenance/scheduler.py",
        "now_ms = await reading(agreed, limit_s=options.clock_s)",
        "now_ms = await reading(agreed, limit_s=options.clock_s) or self._ports.clock.now_ms()",
        tests=("tests/pipeline/maintenance/test_scheduler.py",),
    ),
)

PLANTS = ROWS + SIZES + STORES + CLOCKS
