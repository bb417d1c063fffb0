"""Rows to records: WAL objects put by whoever has the rows, made visible by one commit.

Who does what, from rows to records that everybody sees:

- `write_options` parses the options of Spark's Kafka sink into a `WriteRequest`, and finds the
  columns of a row (`RowColumns`).
- `record_batches` makes record batches of rows: it chooses partitions as the Java client does, and
  compresses and limits batches as the topic says (`StreamBatch`).
- `wal_objects.ObjectWriter` gathers batches by domain and puts them as WAL objects, which nobody
  sees yet (`PlacedObject`).
- `commit_client.WriteClient` asks brokers what a topic needs (`WriteTarget`) and where objects go
  (`WriteStore`), and commits placed objects under a `Transaction`, exactly once in each domain.

Spark's tasks put objects and its driver commits them (`lakelog.spark.writer`).
"""
