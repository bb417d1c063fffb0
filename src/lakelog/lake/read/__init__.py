"""Reading topics straight from object storage, as Arrow: no broker is on the way of the data.

Who does what, from the options to the rows:

- `read_options` parses options by the names of Spark's Kafka source into a `ReadRequest`
  (`read_request`): topics, limits, columns, conditions.
- `range_plan` decides: with what the index says it turns the request into one offset vector and the
  ranges to read (`Pinned`), prunes by conditions, and gives each range the index entries that hold
  it (`PlannedRange`). Pure.
- `http_index.HttpIndex` asks brokers for the index (`lakelog.index.ports.ReadIndex`), and checks
  what they say before it is believed.
- `splits` packs ranges into `Split`s, by bytes: what one task reads, small enough to travel.
- `topic_source.TopicSource` has the index and the object store: it plans (`ReadPlan`) and reads the
  rows of a split. `find_cluster` finds both from the options; `ClusterAddress` travels to tasks.
- `range_reader` reads one range in order of offsets and asks the index again when an object is
  gone; `range_fetch` fetches it in portions of WAL objects, segments and data files; `shared_reads`
  reads an object once for all ranges of a split; `row_decoder` makes the columns.
- `arrow_reader` is what users call (`lakelog.read`, `lakelog.open`): a plan, read on threads.
  Spark's data source (`lakelog.spark`) and SQL (`lakelog.lake.sql`) do the same with their own
  tasks.
"""
