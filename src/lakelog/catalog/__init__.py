"""Iceberg tables of topics: where they are kept, and how files are added to them.

`port.Tables` is the port, with the values that cross it (`TableDefinition`, `Advance`,
`Replacement`, `TableView`); it and what is pure load no PyIceberg.

- `definition` says what every table of a topic is, and `guard` what somebody from outside may
  change; which advances a table's offset vector admits is judged without any library, too;
- `tables.PyIcebergTables` is the port over PyIceberg, which blocks: `threads` runs it beside the
  loop, and `file_io` makes its files objects of the port. `commit` decides,
  `pyiceberg_changes.StagedChange` stages, and one compare-and-swap sends; `live_files` reads what a
  table names; `external_commits` makes a change that somebody from outside sent;
- catalogs: `builtin.BuiltinCatalog` keeps pointers in the metadata store (`pointers.Pointers`), and
  `external.ExternalCatalog` is somebody else's, by REST, SQL, Glue or Hive. In the built-in one
  tables come and go with their topics, without PyIceberg;
- `history.SnapshotHistory` remembers the snapshots that tables had, in pages (`snapshot_page`).
"""
