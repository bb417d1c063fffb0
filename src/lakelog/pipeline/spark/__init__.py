"""The engine on Spark: tasks run on executors, many at once, by one session that stays warm.

Who does what, from the driver to the executors:

- `settings.SparkOptions` says where Spark runs; `session.SessionStart` starts it or reaches a
  remote one, and a `WarmSession` is what is left of that: the session, its files, its process.
- `engine.SparkEngine` is the pipeline's engine. It packs tasks into bins by their size, makes one
  job of a run, cancels it when nobody wants it any more, and knows when Spark is lost.
- `executor_job.BinJob` is what travels: the bins, and where the objects are. On an executor it runs
  each task (`WorkerRuntime` is what the process keeps between them) and answers with a row a task.
- `key_scan.SparkScanner` is the second kind of job: the scan of log compaction, by data frames.
- `diagnosis` says in one line what is wrong with Java, Spark or an executor (`ExecutorReport`).

Values on the way: `FileTask` -> `BinJob` -> rows -> `FileAnswer`, in the order asked for.
"""
