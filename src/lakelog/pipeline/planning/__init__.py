"""What to compact next: the ranges that are due, stream by stream.

`planner.Planner` asks index and tables about all streams and lets the pure modules decide:

- `wal_ranges.plan_stream`: a range of WAL entries that is due, or why not (`NothingDue`,
  `PendingSwap`, `BackfillDue`, `Problem`); and how far a quarantine of bad batches reaches;
- `backfill.plan_backfill`: segments whose rows the table still lacks. `BackfillCandidates`
remembers
  between rounds which streams may have some;
- `small_files.plan_rewrite`: small files of a table that should be one (for `maintenance`).

Each makes `saga.values.PlannedTask`, the description of a task. A `planner.TaskSpec` is one that a
round should begin, with the ended record that it takes the place of; the round makes its
`TaskRecord`.
"""
