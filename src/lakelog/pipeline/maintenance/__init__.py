"""Maintenance of what is there: small files, log compaction, retention and garbage collection.

Two kinds of work. Replacing tasks go through the saga, beside what is new:

- `scheduler.MaintenanceScheduler` looks at all streams now and then. Small files next to each other
  are a `TaskSpec` at once (`planning.small_files` decides); a dirty stream of a compacted
  topic is scanned first, beside the rounds;
- `log_compaction` decides, pure: which range is dirty (`CleaningPlan`), which files become one
  (`CleaningGroup`), how far a stream is clean afterwards (`task_record.Cleaned`);
- `key_scan.Scanner` is the port that scans: the rows of each file that stay (`RetainedRows`). Here
  it runs in this process, in `pipeline.spark.key_scan` on many machines.

The others need no record, run now and then, and may be repeated by anybody:

- `retention.TableRetention` takes files out of tables that are too old, and `HistoryRetention`
  forgets old snapshots;
- `file_gc.FileSweeper` lists objects, looks at records, tables and index in that order, and deletes
  what nobody can ever name again; `gc_rules` decides, pure (`ObjectListing` -> `Garbage` ->
  `GarbageSuspect`, deleted after a grace).
"""
