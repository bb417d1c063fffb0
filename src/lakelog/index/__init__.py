"""The offset index of the log as it is asked for from outside of a broker, over HTTP.

Who asks, and who answers:

- the pipeline plans with the columns of streams, looks at ranges and swaps files in: `remote_index`
  is its port `LogIndex` over HTTP, below /pipeline/v1/ and with a token;
- readers (`lakelog.index.remote_index`) ask where ranges of topics lie, below /read/v1/, and
  `lakelog.tables` there for snapshots and groups;
- writers of WAL objects (`lakelog.lake.write`) commit them, below /write/v1/;
- a broker answers: `http_server` has the routes and the limits; behind them `broker_index` speaks
  for topics and index, `broker_services` for writers, tables and groups. `table_service` shows
  tables to people.

What passes between them:

- `entries`: `Entry` (one entry), `Entries` (neighbours of a stream, as columns), `LocatedRange`
  (where a range lies), `StreamIndex` (what a plan needs of a stream), and their bytes on the wire;
- `ports`: `LogIndex`, `ServedIndex` and `ReadIndex`, with the topics, ranges and views they pass;
- `messages`: the questions and answers, and how a failure travels.

`gather` computes all of it from the arrays of a domain's state. `http_client` asks whichever broker
answers, and says what is known when none does.
"""
