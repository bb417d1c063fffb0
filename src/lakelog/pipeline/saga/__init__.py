"""The saga of a task: durable records, the one step that comes next, and who does it.

Names, from the description of a task to its end:

- description: `values.PlannedTask`, a range of a stream, what becomes of it, and why it is due;
- durable decision: `task_record.TaskRecord`, one key a stream in the metadata store, with the state
  that says what is proved. `record_store.RecordStore` reads and puts them (`StoredRecord`: with the
  version of the key, which every change is conditional on);
- lease: `task_record.Lease` and `LeaseId`. A `observe.LeasedTask` is a task that this pipeline
holds;
- observation: `steps.Observation`, what table, index and record said, looked at in that order. An
  `observe.ObservedTask` is a leased task with it;
- decision: `steps.next_step(observation, lease, fact) -> Step`, pure and the same for every holder;
- result: a `values.Fact` that a reply told for certain, such as `FileWritten` with its `DataFile`.

Roles: `observe` looks, `steps` decides, `executor.TaskExecutor` does the step and looks again.
`table_view` judges by the table's offset vector whether a commit has landed, may be tried, or fits
nowhere (`CommitStatus`). `task_record` also gives every attempt's file a key of its own and
says which file nobody can ever name again.
"""
