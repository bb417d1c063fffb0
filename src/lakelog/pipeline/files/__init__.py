"""The files of tasks: what engines are asked for, and the workers that write them.

From the saga's decision to an object in the store, and back:

- attempt: a step that asks for a file (`saga.steps.WriteFile`) becomes a `file_writes.FileWrite`.
  `FileWrite`s that the engine is asked for at once are an `EngineJob`. `file_writes.task_of` makes
  the engine's task of each, under a key that no other attempt has;
- `file_jobs.FileJobs` has an engine run the jobs and renews the leases of their tasks meanwhile;
- `file_task` holds what travels: `CompactionTask`, `SegmentTask`, `RowsTask`, `RewriteTask` with
  their pieces, and the answers, results or a `CompactionFailure`. It also packs tasks into bins;
- `run_task.run_task` chooses the worker; `run_task.InlineEngine` is the engine of this process
(that
  of many machines is `pipeline.spark`);
- workers: `to_parquet.compact`, `compact_rows` and `rewrite` make data files of WAL objects,
  segments and data files; `to_segment.compact_segment` makes segments. They read by `inputs` and
  put what they made by `output`;
- result: `file_writes.fact_of` makes of an answer the `Fact` that the saga goes on with.
"""
