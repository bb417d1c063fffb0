"""The files of tasks: what engines are asked for, and the workers that write them.

From the saga's decision to an object in the store, and back:

- attempt: a step that asks for a file (`saga.steps.WriteFile`) becomes a `file_writes.FileWrite`.
  `FileWrite`s that the engine is asked for at once are an `EngineJob`. `file_writes.task_of` makes
  the engine's `FileTask` of each, under a key that no other attempt has;
- `file_jobs.FileJobs` has an engine run the jobs and renews the leases of their tasks meanwhile;
- `file_task` holds what travels: the `FileTask` with its inputs (`WalInputs`, `SegmentInputs` or
  `TableInputs`) and output kind, and the answer, a `FileResult` or a `FileFailure`. It also packs
  tasks into bins;
- `run_task.run_task` has the file built and puts it as one object; `run_task.InlineEngine` is the
  engine of this process (that of many machines is `pipeline.spark`);
- workers: `build_file.build_file` builds the data file or segment. It reads by `inputs`;
- result: `file_writes.fact_of` makes of an answer the `Fact` that the saga goes on with.
"""
