"""Topics as tables of rows, straight in object storage and as Arrow: reads, SQL and writes.

`read` plans and reads ranges of topics, wherever they lie: in WAL objects, segments or data files.
`sql` runs statements over topics with DuckDB, on top of `read`. `write` puts rows as WAL objects
and commits them. Brokers answer questions about the index and take commits; they are never on the
way of the data. Spark's data source (`lakelog.spark`) is built on `read` and `write`.
"""
