"""The log: batches in, offsets out, records back, from the domain log and the object store.

Who does what:

- `log.Log` is all that the broker knows of storage: it finds the domain of a stream and asks it.
- In: batches come as `records.batch_rows.BatchRows`. `buffer.ObjectBuffer` decides which of them
  share a WAL object, and `buffer.seal` lays it out (pure); `commit.Committer` puts it and submits
  its Commit, and `writes.Writes` does the same for objects that others put, checked by `placed`
  (pure). `budgets` says when producers have to wait.
- Out: `plan` says which bytes of which objects answer a read (pure: a `StreamPlan` of `Piece`s),
  and `read.Reader` fetches them through one `PieceSource` for each kind of object: `wal_source`,
  `segment_source`, `parquet_source`. `cache` holds what was just written or read. `watch` wakes
  fetches that wait.
- Away: `retention` trims what is too old, and sweeps WAL objects that no entry names any more.

`values` has what crosses the border: `Wanted` in, `Fetched` and `Appended` out. `writes` also
raises a domain's level when somebody needs what it brings. `options.LogOptions` has the limits.
"""
