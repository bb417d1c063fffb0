"""The pipeline: WAL objects become files of tables and segments, and what is old is cleaned up.

Any number of pipelines may run, each a process of its own (`process`), also as the child of a
broker (`child_process`). What they agree on is durable: task records, tables, the index.

Roles in a round (`rounds.Pipeline.round`), in order:

- `table_lifecycle.TableLifecycle` sees to it that topics have their tables, and drops those of
  topics that are gone;
- the round adopts tasks whose holder was not heard of any more, and plans new ones:
  `maintenance.MaintenanceScheduler` those that replace files, `planning.Planner` those that are
  due;
- `files.FileJobs` has an engine (`ports.TaskEngine`, in earnest `spark.SparkEngine`) write their
  files;
- `saga.TaskExecutor` takes each task on, step by step, up to its end.

Values on the way: `PlannedTask` (description) -> `TaskSpec` (to begin) -> `TaskRecord` (durable
decision) -> `LeasedTask` (held) -> `FileWrite` and `FileTask` (attempt) -> `FileResult`, `Fact` and
`DataFile` (result) -> marks, table commits and swaps.

`ports.LimitedPorts` is what all of them work with; `round_counters.RoundCounters` is what they
count in, and `round_report.RoundReport` what people are told. `options.PipelineOptions` has the
limits.
"""
